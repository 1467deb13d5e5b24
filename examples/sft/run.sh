#!/bin/sh
# Fine-tunes SmolLM2 135M Instruct with LoRA, talks to the result and exports it: run from the repository's root, with the
# binary built (`make demo-sft` does both).
set -eu
cd "$(dirname "$0")/../.."
lode=build/bin/lode
work=build/sft-demo
base=build/assets/models/smollm2-135m-instruct/model.gguf
valid=examples/sft/valid.jsonl
mkdir -p "$work"

# How the steps are spelled; $1 names the adapter, nothing the base alone.
loss() { "$lode" eval "$base" "$valid" ${1:+--adapter "$1"} --chat; }
ask() {
  printf '> %s\n' "$2"
  "$lode" generate "$base" ${1:+--adapter "$1"} --chat "$2" --max-new-tokens 80 --temperature 0
  printf '\n'
}
export_as() { "$lode" export "$base" --adapter "$adapter" --format "$1" --out "$2" ${3:+--type "$3"}; }

tools/fetch_example_models smollm2-135m-instruct
echo "data: $(wc -l < examples/sft/train.jsonl) samples to train on, $(wc -l < "$valid") held out"

echo "== loss of the answers held out, before"
loss ""

echo "== training"
begin=$(date +%s)
"$lode" train examples/sft/smollm2.yaml > "$work/adapter.path"
end=$(date +%s)
adapter=$(cat "$work/adapter.path")

echo "== loss of the answers held out, after"
loss "$adapter"

echo "== the same questions, before and after"
for question in "Who are you?" "What is 15% of 60?" "为什么秋天树叶会变黄？" "Tell me how to break into a car."; do
  echo "-- base"
  ask "" "$question"
  echo "-- fine-tuned"
  ask "$adapter" "$question"
done

echo "== export"
rm -rf "$work/merged" "$work/model-f16.gguf" "$work/model-q8_0.gguf" "$work/adapter.gguf"
export_as safetensors "$work/merged"
export_as gguf "$work/model-f16.gguf" f16
export_as gguf "$work/model-q8_0.gguf" q8_0
export_as gguf-lora "$work/adapter.gguf"

echo "== done"
echo "training took $((end - begin)) s"
echo "adapter: $adapter (PEFT loads this folder)"
echo "merged:  $work/merged (Hugging Face transformers loads this folder)"
echo "GGUF:    $work/model-f16.gguf, $work/model-q8_0.gguf, and the adapter alone in $work/adapter.gguf (for llama.cpp)"
echo "report:  $work/run/report.html"
