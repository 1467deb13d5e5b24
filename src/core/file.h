// The one interface under everything persistent. Three forms: the real one, one that fails at the n-th call
// and one that records, so that tests can stop a save at any point. All failures are Error(data) with path,
// operation and reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lode {

// Sequential writing of one file by one thread. Closing without close() is silent and proves nothing.
class OutputFile {
 public:
  virtual ~OutputFile() = default;
  virtual void write(std::span<const std::byte> data) = 0;  // all of it, at the end
  virtual void sync() = 0;                                  // fsync
  virtual void close() = 0;                                 // throws when the system reports a late error
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
};

// A file's bytes, mapped read-only. Reading beyond a file truncated meanwhile is not protected against.
class MappedFile {
 public:
  virtual ~MappedFile() = default;
  virtual std::span<const std::byte> bytes() const = 0;
  // Memory that holds a part of bytes() goes back to the system, with a little around it; reading it again
  // reads the file again. From any thread, others may be reading. By default nothing happens.
  virtual void give_back(std::span<const std::byte>) const {}
  std::string_view text() const { return {reinterpret_cast<const char*>(bytes().data()), bytes().size()}; }
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // Reading
  virtual bool exists(const std::string& path) = 0;
  virtual bool is_directory(const std::string& path) = 0;
  virtual std::uint64_t size(const std::string& path) = 0;
  virtual std::unique_ptr<MappedFile> map(const std::string& path) = 0;
  virtual std::string read(const std::string& path) = 0;
  virtual std::vector<std::string> list(const std::string& directory) = 0;  // names, sorted, without . and ..
  virtual std::uint64_t free_space(const std::string& path) = 0;            // bytes we may still write there

  // Writing
  virtual std::unique_ptr<OutputFile> create(const std::string& path) = 0;  // truncates an existing file
  // The same for a large file: past the system's cache where that is possible.
  virtual std::unique_ptr<OutputFile> create_large(const std::string& path) { return create(path); }
  virtual std::unique_ptr<OutputFile> append(const std::string& path) = 0;  // creates it when absent
  virtual void make_directory(const std::string& path) = 0;                 // with parents; existing is fine
  virtual void rename(const std::string& from, const std::string& to) = 0;  // atomic, replaces a file
  virtual void remove(const std::string& path) = 0;  // file or whole tree; absent is fine
  virtual void truncate(const std::string& path, std::uint64_t size) = 0;
  virtual void sync_directory(const std::string& path) = 0;
};

FileSystem& real_files();

// Throws Error(data) "PATH: cannot OPERATION: reason of error_number".
[[noreturn]] void fail_file(const std::string& path, std::string_view operation, int error_number);

// Forwards to another file system; writing calls are counted from 1, and call number `fail_at` (and, when
// `persistent`, every later one) throws as if the system had returned `error_number` (ENOSPC, EIO, ...). A
// failing write() writes half of its data first, as a full disk does.
class FailingFiles : public FileSystem {
 public:
  FailingFiles(FileSystem& base, std::int64_t fail_at, int error_number, bool persistent = true);
  std::int64_t calls() const;  // writing calls seen so far

  bool exists(const std::string& path) override;
  bool is_directory(const std::string& path) override;
  std::uint64_t size(const std::string& path) override;
  std::unique_ptr<MappedFile> map(const std::string& path) override;
  std::string read(const std::string& path) override;
  std::vector<std::string> list(const std::string& directory) override;
  std::uint64_t free_space(const std::string& path) override;
  std::unique_ptr<OutputFile> create(const std::string& path) override;
  std::unique_ptr<OutputFile> append(const std::string& path) override;
  void make_directory(const std::string& path) override;
  void rename(const std::string& from, const std::string& to) override;
  void remove(const std::string& path) override;
  void truncate(const std::string& path, std::uint64_t size) override;
  void sync_directory(const std::string& path) override;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// One recorded writing call.
struct FileEvent {
  enum class Kind {
    create,
    append,
    write,
    sync,
    close,
    make_directory,
    rename,
    remove,
    truncate,
    sync_directory
  };
  Kind kind;
  std::string path, to;         // `to`: rename only
  std::vector<std::byte> data;  // write only
  std::uint64_t size = 0;       // truncate only
};

// Forwards to another file system and records every writing call that succeeded; replay() repeats a prefix of
// them, with chosen unsynced writes left out, under another root: what a power cut would have left.
class RecordingFiles : public FileSystem {
 public:
  explicit RecordingFiles(FileSystem& base);
  std::vector<FileEvent> events() const;

  bool exists(const std::string& path) override;
  bool is_directory(const std::string& path) override;
  std::uint64_t size(const std::string& path) override;
  std::unique_ptr<MappedFile> map(const std::string& path) override;
  std::string read(const std::string& path) override;
  std::vector<std::string> list(const std::string& directory) override;
  std::uint64_t free_space(const std::string& path) override;
  std::unique_ptr<OutputFile> create(const std::string& path) override;
  std::unique_ptr<OutputFile> append(const std::string& path) override;
  void make_directory(const std::string& path) override;
  void rename(const std::string& from, const std::string& to) override;
  void remove(const std::string& path) override;
  void truncate(const std::string& path, std::uint64_t size) override;
  void sync_directory(const std::string& path) override;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// Replays events[0, count) with paths below `from_root` moved below `to_root`. `keep_unsynced(i)` says
// whether write i that no later sync (within the prefix) covered survives; a lost write leaves zeros when a
// later one of its file survives. Names survive in order, as journalling file systems keep them.
void replay(FileSystem& files, std::span<const FileEvent> events, std::size_t count,
            const std::string& from_root, const std::string& to_root,
            const std::function<bool(std::size_t)>& keep_unsynced);

// Writes a temporary file beside `path`, syncs it, renames it over `path` and syncs the folder.
void write_file_atomically(FileSystem& files, const std::string& path, std::string_view contents);

std::string join_path(std::string_view directory, std::string_view name);  // an absolute name stays as it is
std::string parent_path(std::string_view path);                            // "." for a bare name

// An advisory lock that the system drops when the process ends, however it ends. Throws Error(usage) naming
// the holder's process id when it is held already. The file is removed on release; one left by a killed
// process is taken over.
class FileLock {
 public:
  explicit FileLock(const std::string& path);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  std::string path_;
  int descriptor_ = -1;
};

}  // namespace lode
