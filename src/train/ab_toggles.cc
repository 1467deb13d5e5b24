#include "train/ab_toggles.h"

namespace lode {
namespace {

using Words = std::vector<std::string>;

Toggle toggle(const char* name, const Words& both, const Words& off, const Words& on, const char* fact) {
  Toggle out{name, both, both, fact};
  out.off.insert(out.off.end(), off.begin(), off.end());
  out.on.insert(out.on.end(), on.begin(), on.end());
  return out;
}

// Of what is kept between forward and backward.
void add_activations(std::vector<Toggle>& list) {
  const Words plain = {"gradient_checkpointing=false", "activation_offloading=false"};
  const auto add = [&](const char* name, const Words& off, const Words& on, const char* fact) {
    list.push_back(toggle(name, plain, off, on, fact));
  };
  const Words keep = {"activation_policy=keep"}, offload = {"activation_policy=offload"};
  const Words one_buffer = {"activation_policy=offload", "checkpoint.double_buffer=false"};
  add("recompute, selective", keep, {"activation_policy=recompute", "recompute=selective"}, "activations");
  add("recompute, every 2nd", keep,
      {"activation_policy=recompute", "recompute=every_k", "recompute_interval=2"}, "activations");
  add("recompute, full", keep, {"activation_policy=recompute"}, "activations");
  add("offload", keep, offload, "offload");
  add("offload, selective", keep, {"activation_policy=offload", "recompute=selective"}, "offload");
  add("offload, two buffers", one_buffer, offload, "offload");
  add("offload, in background",
      {"activation_policy=offload", "checkpoint.double_buffer=false", "checkpoint.synchronous=true"},
      one_buffer, "offload");
}

// Of the optimizer's state and of gradients.
void add_optimizers(std::vector<Toggle>& list) {
  const Words adamw = {"optim=adamw_torch"};
  const auto add = [&](const char* name, const Words& both, const Words& off, const Words& on) {
    list.push_back(toggle(name, both, off, on, ""));
  };
  add("adamw_8bit", {}, adamw, {"optim=adamw_8bit"});
  add("adafactor", {}, adamw, {"optim=adafactor"});
  add("lion_8bit", {}, {"optim=lion_32bit"}, {"optim=lion_8bit"});
  add("adam_mini", adamw, {"use_adam_mini=false"}, {"use_adam_mini=true"});
  add("galore", adamw, {"use_galore=false"}, {"use_galore=true"});
  add("apollo", adamw, {"use_apollo=false"}, {"use_apollo=true"});
  add("badam", adamw, {"use_badam=false"}, {"use_badam=true"});
  add("optimizer state on disk", {}, {"optim_offload_dir=''"}, {"optim_offload_dir=@"});
  // Which cannot clip.
  add("update in backward", {"max_grad_norm=0"}, {"optim_in_backward=false"}, {"optim_in_backward=true"});
}

std::vector<Toggle> make_toggles() {
  std::vector<Toggle> list = {
      {"bf16", {"bf16=false"}, {"bf16=true"}, "precision"},
      {"pure bf16", {"bf16=true", "pure_bf16=false"}, {"bf16=true", "pure_bf16=true"}, "precision"},
      {"packing", {"packing=false"}, {"packing=true"}, ""},
      // A stream has no packing but blocks and no held-out part.
      toggle("streaming", {"packing=true", "packing_strategy=blocks", "val_size=0"}, {"streaming=false"},
             {"streaming=true"}, ""),
      {"threads", {"num_threads=1"}, {"num_threads=0"}, "threads"},
      {"metadata cache", {"metadata_cache=false"}, {"metadata_cache=true"}, ""},
      {"captured graph", {"graph=dynamic"}, {"graph=captured"}, "graph"},
  };
  add_activations(list);
  add_optimizers(list);
  list.push_back(
      {"int8 frozen products", {"frozen_compute=auto"}, {"frozen_compute=int8"}, "frozen products"});
  list.push_back({"quantised base, 4 bits", {"quantization_bit=null"}, {"quantization_bit=4"}, ""});
  list.push_back({"quantised base, 8 bits", {"quantization_bit=null"}, {"quantization_bit=8"}, ""});
  return list;
}

}  // namespace

const std::vector<Toggle>& ab_toggles() {
  static const std::vector<Toggle> list = make_toggles();
  return list;
}

}  // namespace lode
