#include "optim/state_store.h"

#include <chrono>
#include <utility>

#include "core/fail.h"
#include "core/file.h"

namespace lode {
namespace {

constexpr std::size_t kWritesInFlight = 2;

std::span<std::byte> bytes_of(const Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.view().data), tensor.bytes()};
}

Tensor make(Memory& memory, MemoryTag tag, const StateStore::Shape& shape) {
  return Tensor(memory, tag, shape.dtype, shape.rows, shape.cols);
}

}  // namespace

StateStore::StateStore(std::string folder, std::size_t parameters, const Open& open)
    : folder_(std::move(folder)), file_(open(folder_, false)), entries_(parameters) {}

// Adds what can be done about it to a file's error.
void StateStore::with_advice(const std::function<void()>& transfer) const {
  try {
    transfer();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::data) throw;
    fail(ErrorKind::data,
         "optim_offload_dir: {}; {} are free there. Name a folder with more room, or an optimizer with less "
         "state",
         error.what(), format_bytes(real_files().free_space(folder_)));
  }
}

void StateStore::finish(Background::Handle& handle) {
  if (!handle) return;
  const Background::Handle job = std::exchange(handle, nullptr);
  if (background_.done(job)) return background_.finish(job);
  const auto begin = std::chrono::steady_clock::now();
  background_.finish(job);
  ++counts_.stalls;
  counts_.time_stalled += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void StateStore::put(std::size_t parameter, std::vector<Tensor> tensors) {
  Entry& entry = entries_[parameter];
  if (entry.places.empty()) {
    for (const Tensor& tensor : tensors) {
      entry.places.push_back({{tensor.dtype(), tensor.rows(), tensor.cols()}, end_});
      end_ += tensor.bytes();
    }
  }
  LODE_ASSERT(tensors.size() == entry.places.size());
  while (writes_.size() >= kWritesInFlight) {
    Background::Handle oldest = std::move(writes_.front());
    writes_.pop_front();
    finish(oldest);
  }
  ++counts_.written;
  // The job owns the tensors, and so frees them.
  writes_.push_back(background_.start([this, places = entry.places, held = std::move(tensors)] {
    with_advice([&] {
      for (std::size_t k = 0; k < held.size(); ++k) file_->write(places[k].offset, bytes_of(held[k]));
    });
  }));
}

void StateStore::read_ahead(Context& context, std::size_t parameter) {
  Entry& entry = entries_[parameter];
  if (!has(parameter) || !entry.arriving.empty()) return;
  for (const Place& place : entry.places)
    entry.arriving.push_back(make(context.memory, MemoryTag::optimizer, place.shape));
  ++counts_.read;
  // Behind all writes: one thread does both, in order.
  entry.transfer = background_.start([this, places = entry.places, into = entry.arriving] {
    with_advice([&] {
      for (std::size_t k = 0; k < into.size(); ++k) file_->read(places[k].offset, bytes_of(into[k]));
    });
  });
}

std::vector<Tensor> StateStore::take(Context& context, std::size_t parameter) {
  read_ahead(context, parameter);
  Entry& entry = entries_[parameter];
  finish(entry.transfer);
  return std::exchange(entry.arriving, {});
}

void StateStore::flush() {
  for (Background::Handle& write : writes_) finish(write);
  writes_.clear();
}

Tensor StateStore::read(Memory& memory, std::size_t parameter, std::size_t index) const {
  const Place& place = entries_[parameter].places.at(index);
  Tensor tensor = make(memory, MemoryTag::workspace, place.shape);
  with_advice([&] { file_->read(place.offset, bytes_of(tensor)); });
  return tensor;
}

}  // namespace lode
