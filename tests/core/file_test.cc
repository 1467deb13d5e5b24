#include "core/file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "core/direct_output.h"
#include "temp_folder.h"

namespace lode {
namespace {

FileSystem& files = real_files();

void put(FileSystem& fs, const std::string& path, std::string_view text) {
  const auto file = fs.create(path);
  file->write(text);
  file->sync();
  file->close();
}

TEST(RealFiles, ReadsAndWrites) {
  const TempFolder folder;
  const std::string path = folder / "a";
  put(files, path, "hello");
  EXPECT_EQ(files.read(path), "hello");
  EXPECT_EQ(files.map(path)->text(), "hello");
  EXPECT_EQ(files.size(path), 5u);
  const auto more = files.append(path);
  more->write(" world");
  more->close();
  EXPECT_EQ(files.read(path), "hello world");
  files.truncate(path, 4);
  EXPECT_EQ(files.read(path), "hell");
  put(files, path, "");
  EXPECT_EQ(files.read(path), "");
  EXPECT_TRUE(files.map(path)->bytes().empty());
  put(files, path, std::string(100000, 'x'));
  EXPECT_EQ(files.read(path), std::string(100000, 'x'));
  EXPECT_NE(files.read("/proc/self/status").find("Name:"), std::string::npos);
  EXPECT_GT(files.free_space(folder.path()), 0u);
}

// Past the cache only whole blocks can be written; files end where they should all the same.
TEST(RealFiles, LargeFiles) {
  const TempFolder folder;
  const std::string path = folder / "large";
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, std::size_t{4096}, kDirectBuffers / 2, 3 * kDirectBuffers + 4097}) {
    SCOPED_TRACE(size);
    std::string text(size, '\0');
    for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>('a' + i * 7 % 26 + i / 4096 % 3);
    const std::string_view all = text;
    const auto file = files.create_large(path);
    // Synced in the middle, with more to follow in the block.
    const std::size_t first = std::min<std::size_t>(size, 5000);
    file->write(all.substr(0, first));
    file->sync();
    EXPECT_EQ(files.size(path), first);
    for (std::size_t at = first; at < size; at += 100'001) file->write(all.substr(at, 100'001));
    file->sync();
    file->close();
    EXPECT_TRUE(files.read(path) == text);
  }
  // What is synced is not written again.
  const auto synced = files.create_large(path);
  synced->write("synced text");
  synced->sync();
  files.truncate(path, 6);
  synced->close();
  EXPECT_EQ(files.read(path), "synced");
  const auto closed = files.create_large(path);
  closed->write("not synced");
  closed->close();
  EXPECT_EQ(files.read(path), "not synced");
  EXPECT_NE(error_of([&] { files.create_large(folder / "absent/file"); }).find("cannot open for writing"),
            std::string::npos);
}

TEST(RealFiles, Folders) {
  const TempFolder folder;
  files.make_directory(folder / "x/y/z");
  files.make_directory(folder / "x/y/z");
  put(files, folder / "x/b", "1");
  put(files, folder / "x/a", "2");
  EXPECT_EQ(files.list(folder / "x"), (std::vector<std::string>{"a", "b", "y"}));
  EXPECT_TRUE(files.is_directory(folder / "x"));
  EXPECT_FALSE(files.is_directory(folder / "x/a"));
  files.sync_directory(folder / "x");
  files.rename(folder / "x", folder / "w");
  EXPECT_FALSE(files.exists(folder / "x"));
  files.remove(folder / "w");
  files.remove(folder / "w");
  EXPECT_FALSE(files.exists(folder / "w"));
}

TEST(RealFiles, RemovingATreeDoesNotFollowLinks) {
  const TempFolder folder;
  files.make_directory(folder / "kept");
  put(files, folder / "kept/file", "1");
  files.make_directory(folder / "tree");
  ASSERT_EQ(symlink((folder / "kept").c_str(), (folder / "tree/link").c_str()), 0);
  files.remove(folder / "tree");
  EXPECT_TRUE(files.exists(folder / "kept/file"));
}

TEST(RealFiles, ErrorsNamePathOperationAndReason) {
  const TempFolder folder;
  const std::string missing = folder / "no/such";
  EXPECT_EQ(error_of([&] { files.read(missing); }), missing + ": cannot open: No such file or directory");
  EXPECT_EQ(kind_of([&] { files.map(missing); }), ErrorKind::data);
  EXPECT_NE(error_of([&] { files.create(missing); }).find("open for writing"), std::string::npos);
  EXPECT_NE(error_of([&] { files.map(folder.path()); }).find("not a regular file"), std::string::npos);
  EXPECT_NE(error_of([&] { files.read(folder.path()); }).find("Is a directory"), std::string::npos);
  EXPECT_NE(error_of([&] { files.list(missing); }), "");
  EXPECT_NE(error_of([&] { files.size(missing); }), "");
  EXPECT_NE(error_of([&] { files.create(folder / std::string(300, 'n')); }).find("too long"),
            std::string::npos);
  EXPECT_NE(error_of([&] { files.read(std::string("/etc/passwd\0x", 13)); }).find("NUL byte"),
            std::string::npos);
  put(files, folder / "file", "");
  EXPECT_NE(error_of([&] { files.make_directory(folder / "file"); }), "");
  const auto full = files.create("/dev/full");
  EXPECT_NE(error_of([&] { full->write("x"); }).find("No space left on device"), std::string::npos);
}

TEST(FailingFiles, FailsAtTheChosenCall) {
  const TempFolder folder;
  const std::string path = folder / "f";
  const auto save = [&](FileSystem& fs) {
    fs.make_directory(folder / "d");
    put(fs, path, "12345678");
    fs.rename(path, path + "2");
    fs.truncate(path + "2", 3);
    fs.sync_directory(folder.path());
    fs.remove(path + "2");
  };
  FailingFiles counting(files, 0, EIO);
  save(counting);
  const std::int64_t calls = counting.calls();
  ASSERT_EQ(calls, 9);
  for (std::int64_t n = 1; n <= calls; ++n) {
    FailingFiles failing(files, n, ENOSPC, false);
    EXPECT_NE(error_of([&] { save(failing); }).find("No space left on device"), std::string::npos) << n;
    EXPECT_EQ(failing.calls(), n);
    if (n == 3) {
      EXPECT_EQ(files.read(path), "1234");
    }
    EXPECT_NO_THROW(save(failing));  // once only
  }
  FailingFiles persistent(files, 2, EIO);
  EXPECT_NE(error_of([&] { save(persistent); }), "");
  EXPECT_NE(error_of([&] { persistent.remove(path); }).find("Input/output error"), std::string::npos);
  EXPECT_EQ(persistent.read("/dev/null"), "");
}

TEST(WriteFileAtomically, KeepsTheOldContentsWhateverFails) {
  const TempFolder folder;
  const std::string path = folder / "f";
  for (const bool persistent : {false, true}) {
    for (std::int64_t n = 1;; ++n) {
      ASSERT_LT(n, 20);
      write_file_atomically(files, path, "old");
      FailingFiles failing(files, n, EIO, persistent);
      const std::string message = error_of([&] { write_file_atomically(failing, path, "new contents"); });
      if (message.empty()) break;
      const std::string left = files.read(path);
      EXPECT_TRUE(left == "old" || left == "new contents") << left;
      if (n <= 4) {
        EXPECT_EQ(left, "old");
      }
      if (!persistent) {
        EXPECT_EQ(files.list(folder.path()).size(), 1u) << n;
      }
    }
    EXPECT_EQ(files.read(path), "new contents");
  }
}

TEST(Replay, APowerCutLeavesOldOrNew) {
  const TempFolder folder;
  files.make_directory(folder / "real");
  RecordingFiles recording(files);
  write_file_atomically(recording, folder / "real/f", "old");
  const std::size_t before = recording.events().size();
  write_file_atomically(recording, folder / "real/f", "new");
  const auto events = recording.events();
  for (std::size_t count = 0; count <= events.size(); ++count) {
    for (const bool keep : {false, true}) {
      files.make_directory(folder / "copy");
      replay(files, events, count, folder / "real", folder / "copy", [&](std::size_t) { return keep; });
      const std::string path = folder / "copy/f";
      const std::string text = files.exists(path) ? files.read(path) : "(none)";
      EXPECT_TRUE(text == "old" || text == "new" || (text == "(none)" && count < before)) << count << text;
      if (count == events.size()) {
        EXPECT_EQ(text, "new");
      }
      files.remove(folder / "copy");
    }
  }
}

TEST(Replay, LostWritesLeaveHolesOrAnEarlierEnd) {
  const TempFolder folder;
  files.make_directory(folder / "real");
  RecordingFiles recording(files);
  const auto file = recording.create(folder / "real/f");
  file->write("ab");
  file->write("cd");
  file->write("ef");
  file->close();
  const auto events = recording.events();
  const auto after = [&](std::size_t lost) {
    files.make_directory(folder / "copy");
    replay(files, events, events.size(), folder / "real", folder / "copy",
           [&](std::size_t i) { return i != lost; });
    return files.read(folder / "copy/f");
  };
  EXPECT_EQ(after(99), "abcdef");
  EXPECT_EQ(after(2), std::string("ab\0\0ef", 6));
  EXPECT_EQ(after(3), "abcd");
}

TEST(Paths, JoinAndParent) {
  EXPECT_EQ(join_path("a", "b"), "a/b");
  EXPECT_EQ(join_path("a/", "b"), "a/b");
  EXPECT_EQ(join_path("", "b"), "b");
  EXPECT_EQ(join_path("a", "/b"), "/b");
  EXPECT_EQ(parent_path("a/b/c"), "a/b");
  EXPECT_EQ(parent_path("a/b/"), "a");
  EXPECT_EQ(parent_path("a"), ".");
  EXPECT_EQ(parent_path("/a"), "/");
  EXPECT_EQ(parent_path("/"), "/");
}

TEST(FileLock, SecondHolderIsRefusedAndNamesTheFirst) {
  const TempFolder folder;
  const std::string path = folder / "lock";
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const FileLock lock(path);
    if (write(ready[1], "x", 1) != 1) _exit(1);
    pause();
    _exit(0);
  }
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_EQ(kind_of([&] { FileLock lock(path); }), ErrorKind::usage);
  EXPECT_NE(error_of([&] { FileLock lock(path); }).find(format("process {} ", child)), std::string::npos);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  {
    const FileLock lock(path);  // left by a killed process
    EXPECT_EQ(files.read(path), format("{}", getpid()));
    EXPECT_EQ(kind_of([&] { FileLock second(path); }), ErrorKind::usage);
  }
  EXPECT_FALSE(files.exists(path));
  EXPECT_EQ(kind_of([&] { FileLock lock(folder / "no/lock"); }), ErrorKind::data);
  close(ready[0]);
  close(ready[1]);
}

}  // namespace
}  // namespace lode
