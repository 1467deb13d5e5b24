"""Training time and encode throughput of ours and of the tokenizers package (requirements.txt), in one run.

    python tools/tokenizer_fixtures/compare_speed.py BUILD_FOLDER/benchmarks/lode_bench_text TEXT [VOCAB_SIZE] [PRE]
    python tools/tokenizer_fixtures/compare_speed.py BUILD_FOLDER/benchmarks/lode_bench_text TEXT --vocabularies FOLDER...

Both train on the same text with two threads and encode the same documents of about 4 KB with the same vocabulary; the
figures are the best of five (training of the package: of two). Ids and merges must be equal.
"""
import json
import os
import subprocess
import sys
import tempfile
import time


def cut(text, size=4096):
    documents = []
    while text:
        end = text.find(b"\n", min(size, len(text)))
        end = len(text) if end < 0 else end + 1
        documents.append(text[:end].decode())
        text = text[end:]
    return documents


def reference(folder, text_path, vocab_size, train):
    """Runs in its own process: the package reads its number of threads once."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    text = open(text_path, "rb").read()
    tokenizer = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    result = {}
    if train:
        times = []
        for _ in range(2):
            fresh = Tokenizer(models.BPE())
            fresh.pre_tokenizer = tokenizer.pre_tokenizer
            trainer = trainers.BpeTrainer(vocab_size=vocab_size, show_progress=False,
                                          initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
            start = time.perf_counter()
            fresh.train_from_iterator([text.decode()], trainer)
            times.append(time.perf_counter() - start)
        result["train_seconds"] = min(times)
        ours, theirs = (json.loads(t.to_str())["model"] for t in (tokenizer, fresh))
        result["equal"] = ours["vocab"] == theirs["vocab"] and ours["merges"] == theirs["merges"]
    documents, times = cut(text), []
    for _ in range(5):
        start = time.perf_counter()
        encoded = tokenizer.encode_batch_fast(documents, add_special_tokens=False)
        times.append(time.perf_counter() - start)
    result["encode_mb_per_s"] = len(text) / 1e6 / min(times)
    result["ids"] = sum(len(e.ids) for e in encoded)
    print(json.dumps(result))


def run_reference(folder, text_path, vocab_size, threads, train=True):
    command = [sys.executable, __file__, "--reference", folder, text_path, str(vocab_size), str(int(train and threads == 2))]
    environment = {**os.environ, "RAYON_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "true"}
    return json.loads(subprocess.run(command, env=environment, check=True, capture_output=True).stdout)


def compare_vocabularies(binary, text_path, folders):
    print(f"{'encode, MB/s, 1 and 2 threads':32}{'ours':>16}{'tokenizers':>16}")
    for folder in folders:
        ours = json.loads(subprocess.run([binary, text_path, folder], check=True, capture_output=True).stdout)
        one, two = (run_reference(folder, text_path, 0, threads, False) for threads in (1, 2))
        assert ours["ids"] == one["ids"] == two["ids"], (ours, one, two)
        print(f"{os.path.basename(folder):32}{ours['encode_mb_per_s_1']:8.1f}{ours['encode_mb_per_s_2']:8.1f}"
              f"{one['encode_mb_per_s']:8.1f}{two['encode_mb_per_s']:8.1f}")


def main():
    if sys.argv[1] == "--reference":
        return reference(sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5] == "1")
    binary, text_path = sys.argv[1:3]
    if sys.argv[3:4] == ["--vocabularies"]:
        return compare_vocabularies(binary, text_path, sys.argv[4:])
    vocab_size = int(sys.argv[3]) if len(sys.argv) > 3 else 32768
    pre = sys.argv[4] if len(sys.argv) > 4 else "gpt2"
    with tempfile.TemporaryDirectory() as folder:
        command = [binary, text_path, str(vocab_size), pre, folder]
        ours = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        one, two = (run_reference(folder, text_path, vocab_size, threads) for threads in (1, 2))
    assert two["equal"] and ours["ids"] == one["ids"] == two["ids"], (ours, one, two)
    print(f"{ours['bytes']} bytes, {ours['merges']} merges, {ours['ids']} ids; merges and number of ids equal")
    print(f"{'':24}{'ours':>10}{'tokenizers':>12}")
    print(f"{'training, s':24}{ours['train_seconds']:10.3f}{two['train_seconds']:12.3f}")
    print(f"{'encode, 1 thread, MB/s':24}{ours['encode_mb_per_s_1']:10.1f}{one['encode_mb_per_s']:12.1f}")
    print(f"{'encode, 2 threads, MB/s':24}{ours['encode_mb_per_s_2']:10.1f}{two['encode_mb_per_s']:12.1f}")


main()
