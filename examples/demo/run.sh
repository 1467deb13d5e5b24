#!/bin/sh
# The demo, from text to a model: run from the repository's root, with the binary built (`make demo` does both).
set -eu
cd "$(dirname "$0")/../.."
lode=build/bin/lode
work=build/demo
mkdir -p "$work"

command -v bible > /dev/null || { echo "demo: the command bible is missing: make setup installs it (package bible-kjv)" >&2; exit 1; }

# The whole text, a verse a line. Every twentieth chapter is held out; chapters are parted by empty lines.
bible -f 'gen1:1-rev22:21' > "$work/bible.txt" 2> /dev/null
awk -v train="$work/train.txt" -v valid="$work/valid.txt" '
  { chapter = $1; sub(/:.*/, "", chapter) }
  chapter != last { ++number; out = number % 20 == 0 ? valid : train; if (seen[out]++) print "" > out; last = chapter }
  { print > out }' "$work/bible.txt"
echo "text: $(wc -c < "$work/bible.txt") bytes of the King James Bible, of which $(wc -c < "$work/valid.txt") are held out"

echo "== tokenizer"
"$lode" tokenizer train "$work/train.txt" --output "$work/tokenizer" --vocab-size 12288

echo "== training"
begin=$(date +%s)
"$lode" train examples/demo/recipe.yaml > "$work/model.path"
end=$(date +%s)
model=$(cat "$work/model.path")

echo "== loss, from the first step to the last"
sed -n 's/.*"step": \([0-9]*\),.*"loss": \([0-9.]*\),.*"learning_rate".*/\1 \2/p' "$work/run/metrics.jsonl" | awk '
  { step[NR] = $1; loss[NR] = $2; if ($2 > top) top = $2 }
  END { for (i = 1; i <= NR; ++i) { bar = ""; for (k = 0; k < loss[i] / top * 60; ++k) bar = bar "#"; printf "%6d  %.3f  %s\n", step[i], loss[i], bar } }'

echo "== on the held-out chapters"
"$lode" eval "$model" "$work/valid.txt" --separator '\n\n' --cutoff-len 256
size=$(wc -c < "$work/bible.txt")
for packer in "xz -9e" "bzip2 -9"; do
  if command -v "${packer%% *}" > /dev/null; then
    packed=$($packer -c "$work/bible.txt" | wc -c)
    awk -v name="$packer" -v packed="$packed" -v size="$size" 'BEGIN { printf "%-9s needs %.2f bits per byte for the whole text\n", name, packed * 8 / size }'
  fi
done

echo "== a sample"
"$lode" generate "$model" --prompt "Ge1:1 In the beginning" --max-new-tokens 100 --temperature 0.8 --top-p 0.95 --seed 7

echo "== done"
echo "training and evaluation took $((end - begin)) s"
echo "model:  $model (Hugging Face transformers loads this folder)"
echo "report: $work/run/report.html"
