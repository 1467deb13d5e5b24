// llm.c's CPU trainer on given rows: its own functions, called as its main does, with arguments instead of constants.
//   llmc_driver CHECKPOINT ROWS BATCH LENGTH STEPS        ROWS: int32 ids, BATCH x LENGTH a step
// The target of a row's last position is the next row's first token. The loss printed is the mean over the other
// positions, which are the targets of trainers that shift labels inside a row.
#define TESTING
#include "train_gpt2.c"

int main(int argc, char** argv) {
  if (argc != 6) {
    fprintf(stderr, "usage: llmc_driver CHECKPOINT ROWS BATCH LENGTH STEPS\n");
    return 2;
  }
  const int B = atoi(argv[3]), T = atoi(argv[4]), steps = atoi(argv[5]);
  const size_t count = (size_t)B * T;
  GPT2 model;
  gpt2_build_from_checkpoint(&model, argv[1]);
  FILE* file = fopenCheck(argv[2], "rb");
  int* ids = (int*)mallocCheck((count * steps + 1) * sizeof(int));
  freadCheck(ids, sizeof(int), count * steps, file);
  ids[count * steps] = ids[0];
  fcloseCheck(file);
  for (int step = 0; step < steps; step++) {
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    int* inputs = ids + step * count;
    gpt2_forward(&model, inputs, inputs + 1, B, T);
    gpt2_zero_grad(&model);
    gpt2_backward(&model);
    gpt2_update(&model, 1e-4f, 0.9f, 0.999f, 1e-8f, 0.0f, step + 1);
    clock_gettime(CLOCK_MONOTONIC, &end);
    double loss = 0;
    for (size_t i = 0; i < count; i++) loss += i % T == (size_t)(T - 1) ? 0 : model.acts.losses[i];
    printf("{\"step\": %d, \"seconds\": %f, \"loss\": %f, \"tokens\": %zu, \"targets\": %zu}\n", step + 1,
           (end.tv_sec - start.tv_sec) + (end.tv_nsec - start.tv_nsec) / 1e9, loss / (B * (T - 1)), count, count);
    fflush(stdout);
  }
  gpt2_free(&model);
  free(ids);
  return 0;
}
