// The two forms of the file interface that tests use: failing at a chosen call, and recording for replay().
#include <atomic>
#include <map>

#include "core/fail.h"
#include "core/file.h"

namespace lode {

struct FailingFiles::State {
  FileSystem& base;
  const std::int64_t fail_at;
  const int error_number;
  const bool persistent;
  std::atomic<std::int64_t> calls{0};

  bool fails_now() {
    const std::int64_t call = ++calls;
    return fail_at > 0 && (call == fail_at || (persistent && call > fail_at));
  }
  void count(const std::string& path, std::string_view operation) {
    if (fails_now()) fail_file(path, operation, error_number);
  }
};

struct RecordingFiles::State {
  FileSystem& base;
  mutable std::mutex mutex;
  std::vector<FileEvent> events;

  void add(FileEvent event) {
    std::lock_guard lock(mutex);
    events.push_back(std::move(event));
  }
};

namespace {

template <class State>
class FailingOutput : public OutputFile {
 public:
  FailingOutput(std::shared_ptr<State> state, std::string path, std::unique_ptr<OutputFile> base)
      : state_(std::move(state)), path_(std::move(path)), base_(std::move(base)) {}
  void write(std::span<const std::byte> data) override {
    const bool fails = state_->fails_now();
    base_->write(fails ? data.first(data.size() / 2) : data);
    if (fails) fail_file(path_, "write", state_->error_number);
  }
  void sync() override {
    state_->count(path_, "sync to disk");
    base_->sync();
  }
  void close() override {
    const bool fails = state_->fails_now();
    base_->close();
    if (fails) fail_file(path_, "close", state_->error_number);
  }

 private:
  std::shared_ptr<State> state_;
  std::string path_;
  std::unique_ptr<OutputFile> base_;
};

template <class State>
class RecordingOutput : public OutputFile {
 public:
  RecordingOutput(std::shared_ptr<State> state, std::string path, std::unique_ptr<OutputFile> base)
      : state_(std::move(state)), path_(std::move(path)), base_(std::move(base)) {}
  void write(std::span<const std::byte> data) override {
    base_->write(data);
    state_->add({FileEvent::Kind::write, path_, {}, {data.begin(), data.end()}});
  }
  void sync() override {
    base_->sync();
    state_->add({FileEvent::Kind::sync, path_});
  }
  void close() override {
    base_->close();
    state_->add({FileEvent::Kind::close, path_});
  }

 private:
  std::shared_ptr<State> state_;
  std::string path_;
  std::unique_ptr<OutputFile> base_;
};

}  // namespace

FailingFiles::FailingFiles(FileSystem& base, std::int64_t fail_at, int error_number, bool persistent)
    : state_(new State{base, fail_at, error_number, persistent}) {}
std::int64_t FailingFiles::calls() const {
  return state_->calls;
}

bool FailingFiles::exists(const std::string& path) {
  return state_->base.exists(path);
}
bool FailingFiles::is_directory(const std::string& path) {
  return state_->base.is_directory(path);
}
std::uint64_t FailingFiles::size(const std::string& path) {
  return state_->base.size(path);
}
std::unique_ptr<MappedFile> FailingFiles::map(const std::string& path) {
  return state_->base.map(path);
}
std::string FailingFiles::read(const std::string& path) {
  return state_->base.read(path);
}
std::vector<std::string> FailingFiles::list(const std::string& path) {
  return state_->base.list(path);
}
std::uint64_t FailingFiles::free_space(const std::string& path) {
  return state_->base.free_space(path);
}

std::unique_ptr<OutputFile> FailingFiles::create(const std::string& path) {
  state_->count(path, "open for writing");
  return std::make_unique<FailingOutput<State>>(state_, path, state_->base.create(path));
}
std::unique_ptr<OutputFile> FailingFiles::append(const std::string& path) {
  state_->count(path, "open for writing");
  return std::make_unique<FailingOutput<State>>(state_, path, state_->base.append(path));
}
void FailingFiles::make_directory(const std::string& path) {
  state_->count(path, "make the folder");
  state_->base.make_directory(path);
}
void FailingFiles::rename(const std::string& from, const std::string& to) {
  state_->count(from, format("rename to {}", to));
  state_->base.rename(from, to);
}
void FailingFiles::remove(const std::string& path) {
  state_->count(path, "remove");
  state_->base.remove(path);
}
void FailingFiles::truncate(const std::string& path, std::uint64_t size) {
  state_->count(path, "truncate");
  state_->base.truncate(path, size);
}
void FailingFiles::sync_directory(const std::string& path) {
  state_->count(path, "sync the folder to disk");
  state_->base.sync_directory(path);
}

RecordingFiles::RecordingFiles(FileSystem& base) : state_(new State{base, {}, {}}) {}
std::vector<FileEvent> RecordingFiles::events() const {
  std::lock_guard lock(state_->mutex);
  return state_->events;
}

bool RecordingFiles::exists(const std::string& path) {
  return state_->base.exists(path);
}
bool RecordingFiles::is_directory(const std::string& path) {
  return state_->base.is_directory(path);
}
std::uint64_t RecordingFiles::size(const std::string& path) {
  return state_->base.size(path);
}
std::unique_ptr<MappedFile> RecordingFiles::map(const std::string& path) {
  return state_->base.map(path);
}
std::string RecordingFiles::read(const std::string& path) {
  return state_->base.read(path);
}
std::vector<std::string> RecordingFiles::list(const std::string& path) {
  return state_->base.list(path);
}
std::uint64_t RecordingFiles::free_space(const std::string& path) {
  return state_->base.free_space(path);
}

std::unique_ptr<OutputFile> RecordingFiles::create(const std::string& path) {
  auto file = std::make_unique<RecordingOutput<State>>(state_, path, state_->base.create(path));
  state_->add({FileEvent::Kind::create, path});
  return file;
}
std::unique_ptr<OutputFile> RecordingFiles::append(const std::string& path) {
  auto file = std::make_unique<RecordingOutput<State>>(state_, path, state_->base.append(path));
  state_->add({FileEvent::Kind::append, path});
  return file;
}
void RecordingFiles::make_directory(const std::string& path) {
  state_->base.make_directory(path);
  state_->add({FileEvent::Kind::make_directory, path});
}
void RecordingFiles::rename(const std::string& from, const std::string& to) {
  state_->base.rename(from, to);
  state_->add({FileEvent::Kind::rename, from, to});
}
void RecordingFiles::remove(const std::string& path) {
  state_->base.remove(path);
  state_->add({FileEvent::Kind::remove, path});
}
void RecordingFiles::truncate(const std::string& path, std::uint64_t size) {
  state_->base.truncate(path, size);
  state_->add({FileEvent::Kind::truncate, path, {}, {}, size});
}
void RecordingFiles::sync_directory(const std::string& path) {
  state_->base.sync_directory(path);
  state_->add({FileEvent::Kind::sync_directory, path});
}

namespace {

std::string moved(const std::string& path, const std::string& from_root, const std::string& to_root) {
  LODE_ASSERT(path.starts_with(from_root));
  return to_root + path.substr(from_root.size());
}

bool synced_later(std::span<const FileEvent> events, std::size_t write, std::size_t count) {
  for (std::size_t i = write + 1; i < count; ++i) {
    if (events[i].path != events[write].path) continue;
    if (events[i].kind == FileEvent::Kind::sync) return true;
    if (events[i].kind == FileEvent::Kind::create) return false;
  }
  return false;
}

// Appends at `position`, where the file may end earlier because of lost writes.
void write_at(FileSystem& files, const std::string& path, std::uint64_t position,
              std::span<const std::byte> data) {
  if (files.size(path) < position) files.truncate(path, position);
  const auto file = files.append(path);
  file->write(data);
  file->close();
}

}  // namespace

void replay(FileSystem& files, std::span<const FileEvent> events, std::size_t count,
            const std::string& from_root, const std::string& to_root,
            const std::function<bool(std::size_t)>& keep_unsynced) {
  using Kind = FileEvent::Kind;
  std::map<std::string, std::uint64_t> position;  // where the next write of an opened file goes
  for (std::size_t i = 0; i < count; ++i) {
    const FileEvent& event = events[i];
    const std::string path = moved(event.path, from_root, to_root);
    switch (event.kind) {
      case Kind::create:
        files.create(path)->close();
        position[path] = 0;
        break;
      case Kind::append:
        files.append(path)->close();
        position[path] = files.size(path);
        break;
      case Kind::write:
        if (synced_later(events, i, count) || keep_unsynced(i)) {
          write_at(files, path, position[path], event.data);
        }
        position[path] += event.data.size();
        break;
      case Kind::make_directory:
        files.make_directory(path);
        break;
      case Kind::rename:
        files.rename(path, moved(event.to, from_root, to_root));
        break;
      case Kind::remove:
        files.remove(path);
        break;
      case Kind::truncate:
        files.truncate(path, event.size);
        position[path] = event.size;
        break;
      case Kind::sync:
      case Kind::close:
      case Kind::sync_directory:
        break;
    }
  }
}

}  // namespace lode
