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
  Offloaded(Offload& owner, std::shared_ptr<Entry> entry) : owner_(owner), entry_(std::move(entry)) {}
  ~Offloaded() override { owner_.release(context_, *entry_); }
  Offloaded(const Offloaded&) = delete;
  Offloaded& operator=(const Offloaded&) = delete;
  const Tensor& get(Context& context) override {
    context_ = &context;
    return owner_.get(context, *entry_);
  }

 private:
  Offload& owner_;
  std::shared_ptr<Entry> entry_;
  Context* context_ = nullptr;  // of the backward that reads
};

Offload::Offload(const std::string& folder, OffloadBuffers buffers, const Open& open)
    : folder_(folder), buffers_(buffers), small_(open(folder, false)), large_(open(folder, true)) {}

Saved Offload::put(const Tensor& tensor) {
  LODE_ASSERT(tensor.view().contiguous() && tensor.view().data == tensor.storage()->data());
  if (entries_.empty()) small_end_ = large_end_ = 0;  // nothing waits: the files' space is used again
  const bool large = tensor.bytes() >= kLarge;
  std::uint64_t& end = large ? large_end_ : small_end_;
  const auto entry = std::make_shared<Entry>(
      Entry{tensor.dtype(), tensor.rows(), tensor.cols(), large ? large_.get() : small_.get(), end,
            large ? round_up(tensor.bytes()) : tensor.bytes(), tensor, nullptr});
  end += round_up(tensor.bytes());
  entries_.push_back(entry);
  auto later = std::make_shared<Offloaded>(*this, entry);
  write(entry);
  return Saved(std::move(later));
}

void Offload::write(const std::shared_ptr<Entry>& entry) {
  const std::size_t buffers = buffers_ == OffloadBuffers::two ? 2 : 1;
  while (buffers_ != OffloadBuffers::none && resident_.size() >= buffers) {
    const std::shared_ptr<Entry> oldest = resident_.front();
    resident_.erase(resident_.begin());
    wait(*oldest);
    oldest->tensor = Tensor();
  }
  ++counts_.written;
  counts_.bytes_written += entry->bytes;
  // The job holds the tensor itself, and so its memory, whatever becomes of the entry.
  const auto job = [tensor = entry->tensor, folder = folder_, file = entry->file, offset = entry->offset,
                    bytes = entry->bytes] {
    with_advice(folder, [&] { file->write(offset, {tensor.storage()->data(), bytes}); });
  };
  if (buffers_ == OffloadBuffers::none) {
    run(job);
    entry->tensor = Tensor();
    return;
  }
  resident_.push_back(entry);
  entry->transfer = background_.start(job);
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

const Tensor& Offload::get(Context& context, Entry& entry) {
  const auto same = [&entry](const std::shared_ptr<Entry>& other) { return other.get() == &entry; };
  if (!entry.got) {
    entry.got = true;
    const auto resident = std::ranges::find_if(resident_, same);
    if (resident != resident_.end()) {
      // Still in memory: whether it reaches the file does not matter any more.
      if (const Background::Handle writing = std::exchange(entry.transfer, nullptr))
        background_.cancel(writing);
      resident_.erase(resident);
    } else if (!entry.tensor.defined()) {
      read(context, entry);
    }
  }
  if (buffers_ == OffloadBuffers::two) {
    const auto here = std::ranges::find_if(entries_, same);
    if (here != entries_.begin() && here != entries_.end()) {
      Entry& before = **std::prev(here);
      if (!before.tensor.defined()) read(context, before);
    }
  }
  wait(entry);
  return entry.tensor;
}

void Offload::release(Context* context, const Entry& entry) {
  const auto same = [&entry](const std::shared_ptr<Entry>& other) { return other.get() == &entry; };
  if (entry.transfer) background_.cancel(entry.transfer);
  std::erase_if(resident_, same);
  std::erase_if(entries_, same);
  // The one buffer is free.
  if (buffers_ != OffloadBuffers::one || context == nullptr || entries_.empty()) return;
  Entry& before = *entries_.back();
  if (before.tensor.defined()) return;
  try {
    read(*context, before);
  } catch (const std::exception&) {  // get() tries again, and can say so
  }
}

}  // namespace lode
