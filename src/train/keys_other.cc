// Keys of other tools that have no field of their own here: those that mean nothing, with the reason, and
// those that lode does not do yet.
#include "train/keys_build.h"

namespace lode {
namespace {

void add_keys_without_effect(KeyTable& t) {
  t.group("without effect");
  const char* executes = "nothing of a model's folder is ever executed";
  t.no_effect("trust_remote_code", executes);
  t.no_effect("use_fast_tokenizer", "there is one tokenizer");
  t.no_effect("low_cpu_mem_usage", "weights are mapped, never loaded twice");

  const char* loader = "one thread makes the steps, from a mapped file or a stream";
  t.no_effect("dataloader_num_workers", loader);
  t.no_effect("dataloader_pin_memory", loader);
  t.no_effect("dataloader_persistent_workers", loader);
  t.no_effect("dataloader_prefetch_factor", loader);
  t.no_effect("preprocessing_batch_size", loader);
  t.no_effect(
      "overwrite_cache",
      "prepared data is addressed by content: a changed file, tokenizer or option never finds an old entry");
  t.no_effect("group_by_length", "nothing is padded");
  t.no_effect("padding_free", "nothing is padded");
  t.no_effect("remove_unused_columns", "only the columns that are asked for are read");

  t.no_effect("neat_packing", "packed documents never see each other");
  t.no_effect("eval_sample_packing", "evaluation gives the same loss packed or not");

  const char* single = "one process trains, without collectives";
  t.no_effect("ddp_timeout", single);
  t.no_effect("ddp_find_unused_parameters", single);
  t.no_effect("ddp_bucket_cap_mb", single);
  t.no_effect("local_rank", single);

  const char* tiled = "attention is always computed in tiles, without a score matrix";
  t.no_effect("flash_attn", tiled)
      .alias("attn_implementation", std::string(kHuggingFace))
      .alias("attn_impl", "ms-swift");
  t.no_effect("flash_attention", tiled);
  const char* fused = "the fused kernels, the vocabulary head included, are always used";
  t.no_effect("enable_liger_kernel", fused).alias("use_liger_kernel", std::string(kHuggingFace));
  t.no_effect("use_unsloth", fused);
  t.no_effect("tf32", "a CPU has no tf32");
  t.no_effect("fp16.fp16_opt_level", "there is one form of mixed precision");
  t.no_effect("disable_gradient_checkpointing",
              "blocks are recomputed only when activation_policy or gradient_checkpointing asks for it");

  const char* same = "a run is always reproducible bit for bit";
  t.no_effect("full_determinism", same).alias("deterministic_mode", "Megatron");
  t.no_effect("include_num_input_tokens_seen", "tokens are always counted");
  t.no_effect("include_tokens_per_second", "throughput is always measured");
  t.no_effect("compute_accuracy", "token accuracy is always measured");
  t.no_effect("plot_loss", "report.html always has the curves");
  t.no_effect("logging_nan_inf_filter", "a loss that is not finite is always reported");
  t.no_effect("save_safetensors", "checkpoints are always safetensors");
}

void add_keys_to_come(KeyTable& t) {
  t.group("not supported yet");
  t.not_yet("do_train", {"true"});
  t.not_yet("do_eval", {"true"});
  for (const char* name : {"fp8",
                           "tokenized_path",
                           "ignore_data_skip",
                           "do_predict",
                           "predict_with_generate",
                           "push_to_hub",
                           "use_mlflow",
                           "use_swanlab",
                           "deepspeed",
                           "fsdp",
                           "fsdp_config",
                           "parallelism_config",
                           "sequence_parallel",
                           "load_in_4bit",
                           "load_in_8bit",
                           "use_dora",
                           "pissa_init",
                           "resume_only_model",
                           "finetune",
                           "no_load_optim",
                           "auto_resume_from_checkpoints",
                           "save_first_step",
                           "logging_first_step",
                           "eval_on_start",
                           "eval_on_each_dataset",
                           "completion_only_loss",
                           "assistant_only_loss",
                           "rlhf_type",
                           "rl",
                           "reward_model",
                           "ref_model",
                           "training.moe.fused_grouping",
                           "data_shared_file_system"}) {
    t.not_yet(name);
  }
  for (const char* name : {"loraplus_lr_ratio",    "pref_beta",         "pref_loss",
                           "num_generations",      "moe_aux_loss_coef", "router_aux_loss_coef",
                           "rope_scaling",         "buffer_size",       "dataset_prepared_path",
                           "cached_dataset",       "special_tokens",    "hub_model_id",
                           "wandb_project",        "eval_iters",        "recompute_method",
                           "recompute_num_layers", "comm_timeout",      "num_layers",
                           "hidden_size",          "ffn_hidden_size",   "num_attention_heads",
                           "num_query_groups",     "saves_per_epoch",   "evals_per_epoch",
                           "model_revision"}) {
    t.not_yet(name);
  }
  t.not_yet("quantization_method", {"bnb", "bitsandbytes"});
  t.not_yet("quantization_type", {"nf4"});
  t.not_yet("double_quantization", {"true"});
  t.not_yet("lora_target_linear", {"true"});
  t.not_yet("logging_strategy", {"steps"});
  t.not_yet("torch_dtype", {"auto"});
  for (const char* name :
       {"tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size",
        "expert_model_parallel_size", "sequence_parallel_size", "tensor_parallel_size", "dp_shard_size",
        "dp_replicate_size", "expert_parallel_size"}) {
    t.not_yet(name, {"1"});
  }
  t.not_yet("tensor_model_parallel", {"1"});
  t.not_yet("pipeline_model_parallel", {"1"});
}

}  // namespace

void add_other_keys(std::vector<Key>& keys) {
  KeyTable table(keys);
  add_keys_without_effect(table);
  add_keys_to_come(table);
}

}  // namespace lode
