"""Runs one trainer in a process of its own and measures it from outside, the same way whatever the trainer is."""
import json
import os
import pathlib
import shlex
import subprocess
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "peers"
LODE = ROOT / "build" / "bin" / "lode"
THREADS = len(os.sched_getaffinity(0))
# PyTorch's tensors and whatever malloc maps lie in huge pages, as Lodestone's arenas do.
PEER_ENVIRONMENT = {"OMP_NUM_THREADS": str(THREADS), "THP_MEM_ALLOC_ENABLE": "1",
                    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
OFFLINE = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_DISABLE_TELEMETRY": "1"}


class NotMeasured(Exception):
    """Something that the machine lacks, in a sentence for the table."""


def python():
    """The interpreter that has the peers' packages: LODE_PEERS_PYTHON, or build/peers/venv, made when missing."""
    given = os.environ.get("LODE_PEERS_PYTHON")
    if given:
        return pathlib.Path(given)
    venv = WORK / "venv"
    ready = venv / "ready"
    requirements = ROOT / "benchmarks" / "peers" / "requirements.txt"
    if not ready.exists() or ready.read_text() != requirements.read_text():
        print("peers: installing requirements.txt into build/peers/venv (PIP_EXTRA_INDEX_URL can name an index with CPU "
              "builds of PyTorch)", flush=True)
        subprocess.run(["python3", "-m", "venv", venv], check=True)
        done = subprocess.run([venv / "bin" / "pip", "install", "--quiet", "--requirement", requirements])
        if done.returncode != 0:
            raise NotMeasured("the packages of benchmarks/peers/requirements.txt cannot be installed")
        ready.write_text(requirements.read_text())
    return venv / "bin" / "python"


def shown(path):
    """A path or argument as in a command given from the repository's root."""
    text = str(path)
    return text.removeprefix(f"{ROOT}/")


class Run:
    """What one process did: `steps` of {step, seconds, loss, targets, tokens}, `more` for single events."""

    def __init__(self):
        self.steps, self.more = [], {}
        self.first_step_s = self.peak_rss_mb = self.wall_s = self.cores = None


def measure(arguments, environment, log, first_step_file=None):
    """Runs the command. Its standard output is JSON lines: steps have a key "step", other lines go into `more`.

    The peak of resident memory is the kernel's figure for the process. The first step is done when its line appears, or
    when `first_step_file` has content.
    """
    run = Run()
    log.parent.mkdir(parents=True, exist_ok=True)
    if first_step_file and first_step_file.exists():
        first_step_file.unlink()
    begin = time.perf_counter()
    done = threading.Event()

    def watch():
        while not done.wait(0.01):
            if first_step_file.exists() and first_step_file.stat().st_size > 0:
                run.first_step_s = time.perf_counter() - begin
                return

    with open(log, "w", encoding="utf-8") as stderr:
        child = subprocess.Popen([str(a) for a in arguments], cwd=ROOT, stdout=subprocess.PIPE, stderr=stderr, text=True,
                                 stdin=subprocess.DEVNULL, env={**os.environ, **OFFLINE, **environment})
        watcher = threading.Thread(target=watch) if first_step_file else None
        if watcher:
            watcher.start()
        for line in child.stdout:
            if not line.startswith("{"):
                continue
            event = json.loads(line)
            if "step" in event:
                if not run.steps and run.first_step_s is None:
                    run.first_step_s = time.perf_counter() - begin
                run.steps.append(event)
            else:
                run.more.update(event)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        run.wall_s = time.perf_counter() - begin
        done.set()
        if watcher:
            watcher.join()
        child.stdout.close()
    run.peak_rss_mb = usage.ru_maxrss / 1024
    run.cores = (usage.ru_utime + usage.ru_stime) / run.wall_s
    if child.returncode != 0:
        tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:])
        raise RuntimeError(f"{command_text(arguments, environment)} ended with {child.returncode}:\n{tail}")
    return run


def command_text(arguments, environment):
    words = [f"{key}={value}" for key, value in environment.items()]
    return " ".join(words + [shlex.quote(shown(a)) for a in arguments])


def lode_run(recipe, log):
    """`lode train` with a recipe whose output_dir is <recipe's folder>/<its name>; one line of metrics a step."""
    output = recipe.parent / recipe.stem
    arguments = [LODE, "train", recipe]
    environment = {"LODE_CACHE": str(WORK / "cache"), "OMP_NUM_THREADS": str(THREADS)}
    run = measure(arguments, environment, log, first_step_file=output / "metrics.jsonl")
    targets = 0
    for line in (output / "metrics.jsonl").read_text().splitlines():
        event = json.loads(line)
        if "eval_loss" in event:
            run.more["eval_loss"] = event["eval_loss"]
        elif "loss" in event:
            seconds = event["time_step"]
            run.steps.append({"step": event["step"], "seconds": seconds, "loss": event["loss"],
                              "targets": event["tokens"] - targets,
                              "tokens": round(event["time_tokens_per_second"] * seconds)})
            targets = event["tokens"]
    record = json.loads((output / "run.json").read_text())
    training = record["training"]
    run.more["flops_per_token"] = training["flops"] / training["tokens"]
    run.more["version"] = f"lode {record['build']['version']}"
    return run


def peak_gflops():
    """What square products reach at this moment, by type."""
    done = subprocess.run([LODE, "bench", "gemm", "--json"], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)["gflops"]
