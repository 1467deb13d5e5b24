#include "autograd/offload.h"

#include <algorithm>
#include <chrono>

#include "core/fail.h"
#include "core/file.h"

namespace lode {
namespace {

// From this size on Memory aligns blocks to pages and rounds them up to whole ones, as direct I/O needs.
constexpr std::size_t kLarge = std::size_t{1} << 20;

std::size_t round_up(std::size_t bytes) {
  constexpr std::size_t kUnit = ScratchFile::kDirectUnit;
  return (bytes + kUnit - 1) / kUnit * kUnit;
}

// Adds what can be done about it to a file's error.
void with_advice(const std::string& folder, const std::function<void()>& transfer) {
  try {
    transfer();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::data) throw;
    fail(ErrorKind::data,
         "offload_dir: {}; {} are free there. Name a folder with more room, or use activation_policy: "
         "recompute",
         error.what(), format_bytes(real_files().free_space(folder)));
  }
}

}  // namespace

class Offload::Offloaded : public LaterTensor {
 public:
  Offloaded(Offload& owner, Entry entry) : owner_(owner), entry_(std::move(entry)) {}
  ~Offloaded() override { owner_.release(context_, entry_); }
  Offloaded(const Offloaded&) = delete;
  Offloaded& operator=(const Offloaded&) = delete;
  const Tensor& get(Context& context) override {
    context_ = &context;
    return owner_.get(context, entry_);
  }
  Entry& entry() { return entry_; }

 private:
  Offload& owner_;
  Entry entry_;
  Context* context_ = nullptr;  // of the backward that reads
};

Offload::Offload(const std::string& folder, OffloadBuffers buffers, const Open& open)
    : folder_(folder), buffers_(buffers), small_(open(folder, false)), large_(open(folder, true)) {}

void Offload::begin_group() {
  std::erase_if(groups_, [](const auto& group) { return group->entries.empty(); });
  if (groups_.empty()) small_end_ = large_end_ = 0;  // nothing waits: the files' space is used again
  // All but the newest are in the file alone when there is one buffer, all but two when there are two.
  const std::size_t others = buffers_ == OffloadBuffers::two ? 1 : 0;
  for (std::size_t i = 0; i + others < groups_.size(); ++i) {
    if (groups_[i]->resident) evict(*groups_[i]);
  }
  groups_.push_back(std::make_shared<Group>());
}

void Offload::evict(Group& group) {
  group.resident = false;
  for (Entry* entry : group.entries) {
    wait(*entry);
    entry->tensor = Tensor();
  }
}

Saved Offload::add(const Tensor& tensor) {
  LODE_ASSERT(tensor.view().contiguous() && tensor.view().data == tensor.storage()->data());
  const std::shared_ptr<Group>& group = groups_.back();
  for (const Entry* entry : group->entries) {
    if (entry->tensor.defined() && entry->tensor.storage() == tensor.storage() &&
        entry->rows == tensor.rows() && entry->cols == tensor.cols())
      return Saved(std::shared_ptr<LaterTensor>(entry->later));
  }
  const bool large = tensor.bytes() >= kLarge;
  std::uint64_t& end = large ? large_end_ : small_end_;
  const auto later =
      std::make_shared<Offloaded>(*this, Entry{group,
                                               tensor.dtype(),
                                               tensor.rows(),
                                               tensor.cols(),
                                               large ? large_.get() : small_.get(),
                                               end,
                                               large ? round_up(tensor.bytes()) : tensor.bytes(),
                                               tensor,
                                               nullptr,
                                               {}});
  end += round_up(tensor.bytes());
  later->entry().later = later;
  group->entries.push_back(&later->entry());
  write(later->entry());
  return Saved(later);
}

Saved Offload::put(const Tensor& tensor) {
  begin_group();
  Saved saved = add(tensor);
  if (buffers_ == OffloadBuffers::none) evict(*groups_.back());
  return saved;
}

void Offload::write(Entry& entry) {
  ++counts_.written;
  counts_.bytes_written += entry.bytes;
  // The job holds the tensor itself, and so its memory, whatever becomes of the entry.
  const auto job = [tensor = entry.tensor, folder = folder_, file = entry.file, offset = entry.offset,
                    bytes = entry.bytes] {
    with_advice(folder, [&] { file->write(offset, {tensor.storage()->data(), bytes}); });
  };
  if (buffers_ == OffloadBuffers::none) return run(job);
  entry.transfer = background_.start(job);
}

void Offload::read(Context& context, Entry& entry) {
  entry.tensor = Tensor(context.memory, MemoryTag::activations, entry.dtype, entry.rows, entry.cols);
  ++counts_.read;
  counts_.bytes_read += entry.bytes;
  const auto job = [tensor = entry.tensor, folder = folder_, file = entry.file, offset = entry.offset,
                    bytes = entry.bytes] {
    with_advice(folder, [&] { file->read(offset, {tensor.storage()->data(), bytes}); });
  };
  if (buffers_ == OffloadBuffers::none) return run(job);
  entry.transfer = background_.start(job);
}

// The computation itself does the transfer, or waits for it.
void Offload::run(const std::function<void()>& transfer) {
  const auto begin = std::chrono::steady_clock::now();
  transfer();
  ++counts_.stalls;
  counts_.time_stalled += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void Offload::wait(Entry& entry) {
  if (!entry.transfer) return;
  const Background::Handle transfer = std::exchange(entry.transfer, nullptr);
  if (background_.done(transfer)) return background_.finish(transfer);
  run([&] { background_.finish(transfer); });
}

// In the order in which backward will ask.
void Offload::read(Context& context, const Group& group) {
  for (auto entry = group.entries.rbegin(); entry != group.entries.rend(); ++entry) {
    if (!(*entry)->tensor.defined()) read(context, **entry);
  }
}

Offload::Group* Offload::before(const Group& group) const {
  Group* before = nullptr;
  for (const auto& other : groups_) {
    if (other.get() == &group) break;
    if (!other->entries.empty()) before = other.get();
  }
  return before;
}

void Offload::reach(Context& context, Group& group) {
  group.got = true;
  if (group.resident) {
    // Still in memory: whether it reaches the file does not matter any more.
    for (Entry* entry : group.entries) {
      if (const Background::Handle writing = std::exchange(entry->transfer, nullptr))
        background_.cancel(writing);
    }
  } else if (buffers_ != OffloadBuffers::none) {
    read(context, group);
  }
  Group* const next = buffers_ == OffloadBuffers::two ? before(group) : nullptr;
  if (next != nullptr && !next->resident) read(context, *next);
}

const Tensor& Offload::get(Context& context, Entry& entry) {
  if (!entry.group->got) reach(context, *entry.group);
  if (!entry.tensor.defined()) read(context, entry);
  wait(entry);
  return entry.tensor;
}

void Offload::release(Context* context, Entry& entry) {
  if (entry.transfer) background_.cancel(entry.transfer);
  entry.tensor = Tensor();
  std::erase(entry.group->entries, &entry);
  // The one buffer is free.
  if (buffers_ != OffloadBuffers::one || context == nullptr || !entry.group->entries.empty()) return;
  Group* const next = before(*entry.group);
  if (next == nullptr || next->resident) return;
  try {
    read(*context, *next);
  } catch (const std::exception&) {  // get() tries again, and can say so
  }
}

}  // namespace lode
