"""One training run of transformers' Trainer, with PEFT when there is an adapter. Prints a JSON line a step.

usage: trainer.py RUN.json, with
  model      folder of weights and configuration          dtype     in which they are loaded
  adapter    PEFT adapter to start from, or null          layout    padded, packed (no padding, positions begin anew) or
  tokens     JSON file: samples of ids and labels                   blocks (rows of one length)
  batch_size, steps, learning_rate, warmup_steps, lr_scheduler_type, weight_decay, adam_beta2, compile
  bf16       autocast to bf16                             eval      null, or the file of samples to evaluate at the end
"""
import json
import sys
import time

import accelerate
import peft
import torch
import transformers


class Samples(torch.utils.data.Dataset):
    def __init__(self, path):
        with open(path, encoding="utf-8") as f:
            self.items = json.load(f)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


class Reporter(transformers.TrainerCallback):
    """Time from the end of a step to the end of the next one: loading of the batch included."""

    def __init__(self, samples, batch_size):
        self.samples, self.batch_size = samples, batch_size
        self.last, self.seconds = None, 0

    def on_train_begin(self, args, state, control, **kwargs):
        self.last = time.perf_counter()

    def on_step_end(self, args, state, control, **kwargs):
        now = time.perf_counter()
        self.seconds, self.last = now - self.last, now

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" not in logs:
            return
        begin = (state.global_step - 1) * self.batch_size
        batch = [self.samples[i % len(self.samples)] for i in range(begin, begin + self.batch_size)]
        print(json.dumps({"step": state.global_step, "seconds": self.seconds, "loss": float(logs["loss"]),
                          "tokens": sum(len(s["input_ids"]) for s in batch),
                          "targets": sum(sum(label != -100 for label in s["labels"][1:]) for s in batch)}), flush=True)
        self.last = time.perf_counter()


def collator(layout):
    if layout == "packed":
        return transformers.DataCollatorWithFlattening(return_position_ids=True)

    def pad(items):
        longest = max(len(item["input_ids"]) for item in items)

        def rows(key, filler):
            return torch.tensor([item[key] + [filler] * (longest - len(item[key])) for item in items])
        batch = {"input_ids": rows("input_ids", 0), "labels": rows("labels", -100)}
        if layout == "padded":
            batch["attention_mask"] = torch.tensor([[1] * len(i["input_ids"]) + [0] * (longest - len(i["input_ids"]))
                                                    for i in items])
        return batch
    return pad


def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        run = json.load(f)
    transformers.utils.logging.set_verbosity_error()
    print(json.dumps({"version": f"transformers {transformers.__version__}, peft {peft.__version__}, "
                                 f"accelerate {accelerate.__version__}, torch {torch.__version__}"}), flush=True)
    model = transformers.AutoModelForCausalLM.from_pretrained(run["model"], dtype=getattr(torch, run["dtype"]),
                                                              attn_implementation="sdpa")
    if run["adapter"]:
        model = peft.PeftModel.from_pretrained(model, run["adapter"], is_trainable=True)
    samples = Samples(run["tokens"])
    arguments = transformers.TrainingArguments(
        output_dir=run["output_dir"], use_cpu=True, bf16=run["bf16"], torch_compile=run["compile"], seed=1,
        per_device_train_batch_size=run["batch_size"], per_device_eval_batch_size=run["batch_size"],
        max_steps=run["steps"], learning_rate=run["learning_rate"], lr_scheduler_type=run["lr_scheduler_type"],
        warmup_steps=run["warmup_steps"], weight_decay=run["weight_decay"], adam_beta2=run["adam_beta2"],
        max_grad_norm=1.0, optim="adamw_torch_fused", logging_steps=1, logging_nan_inf_filter=False,
        save_strategy="no", eval_strategy="no", report_to="none", disable_tqdm=True, remove_unused_columns=False,
        train_sampling_strategy="sequential")
    trainer = transformers.Trainer(model=model, args=arguments, train_dataset=samples,
                                   data_collator=collator(run["layout"]),
                                   callbacks=[Reporter(samples, run["batch_size"])])
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train()
    if run["eval"]:
        print(json.dumps({"eval_loss": trainer.evaluate(Samples(run["eval"]))["eval_loss"]}), flush=True)


if __name__ == "__main__":
    main()
