// A save or a removal stopped anywhere leaves checkpoints that load, old or new, to the last bit.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <set>

#include "checkpoint_fixture.h"
#include "core/rng.h"

namespace lode {
namespace {

FileSystem& files = real_files();

TEST(CheckpointFaults, FailureAtEachCallOfASaveKeepsTheOldOne) {
  for (const int error : {ENOSPC, EIO}) {
    for (const bool persistent : {false, true}) {
      const TempFolder folder;
      save_tiny(files, folder.path(), 1);
      FailingFiles counting(files, 0, error);
      save_tiny(counting, folder.path(), 2);
      files.remove(folder / "checkpoint-2");
      const std::int64_t calls = counting.calls();
      ASSERT_GT(calls, 30);
      for (std::int64_t n = 1; n <= calls; ++n) {
        clean_leftovers(files, folder.path());
        FailingFiles failing(files, n, error, persistent);
        const std::string message = error_of([&] { save_tiny(failing, folder.path(), 2); });
        ASSERT_NE(message.find(error == EIO ? "Input/output error" : "No space left"), std::string::npos)
            << n << message;
        ASSERT_NE(message.find("checkpoint-2 was not saved"), std::string::npos) << message;
        ASSERT_NE(message.find("bytes needed"), std::string::npos) << message;
        // Only after the rename, when the folder's sync failed, is the new one there.
        ASSERT_EQ(check_latest(files, folder.path()), n == calls ? 2 : 1) << n;
        if (!persistent) {
          ASSERT_EQ(files.list(folder.path()).size(), n == calls ? 2u : 1u) << n;
        }
      }
      save_tiny(files, folder.path(), 3);
      EXPECT_EQ(check_latest(files, folder.path()), 3);
    }
  }
}

TEST(CheckpointFaults, FailureAtEachCallOfAReplacementOrRemovalLosesNothing) {
  for (std::int64_t n = 1;; ++n) {
    ASSERT_LT(n, 100);
    const TempFolder folder;
    save_tiny(files, folder.path(), 1);
    FailingFiles failing(files, n, EIO);
    const bool failed = !error_of([&] { save_tiny(failing, folder.path(), 1); }).empty();
    clean_leftovers(files, folder.path());
    ASSERT_EQ(check_latest(files, folder.path()), 1) << n;
    ASSERT_EQ(files.list(folder.path()).size(), 1u) << n;
    if (!failed && failing.calls() < n) break;
  }
  for (std::int64_t n = 1;; ++n) {
    ASSERT_LT(n, 100);
    const TempFolder folder;
    for (const std::int64_t step : {1, 2, 3}) save_tiny(files, folder.path(), step);
    FailingFiles failing(files, n, EIO);
    const bool failed = !error_of([&] { prune_checkpoints(failing, folder.path(), 1); }).empty();
    ASSERT_EQ(check_latest(files, folder.path()), 3) << n;
    for (const CheckpointReport& report : check_checkpoints(files, folder.path()))
      ASSERT_TRUE(report.sound());
    if (!failed) break;
  }
}

TEST(CheckpointFaults, KilledAtRandomMomentsTheNewestStillLoads) {
  const TempFolder folder;
  save_tiny(files, folder.path(), 1);
  Rng rng(5, "kill");
  std::int64_t latest = 1;
  // A busy machine may need more rounds to get anywhere.
  for (int round = 0; round < 40 || (latest < 10 && round < 2000); ++round) {
    const pid_t child = fork();
    if (child == 0) {
      for (std::int64_t step = latest + 1;; ++step) {
        save_tiny(files, folder.path(), step);
        prune_checkpoints(files, folder.path(), 2);
      }
    }
    usleep(static_cast<useconds_t>(rng.below(20'000)));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    // What has the name of a checkpoint is one, before anything is cleaned.
    for (const CheckpointReport& report : check_checkpoints(files, folder.path()))
      ASSERT_TRUE(report.sound());
    clean_leftovers(files, folder.path());
    const std::int64_t now = check_latest(files, folder.path());
    ASSERT_GE(now, latest);
    latest = now;
  }
  EXPECT_GE(latest, 10);
}

// What a power cut at `count` leaves, with the unsynced writes that `keep` names; returns the step that
// loads.
std::int64_t after_power_cut(std::span<const FileEvent> events, std::size_t count, const std::string& from,
                             const std::string& to, const std::function<bool(std::size_t)>& keep) {
  files.make_directory(to);
  replay(files, events, count, from, to, keep);
  clean_leftovers(files, to);
  const std::int64_t step = check_latest(files, to);
  files.remove(to);
  return step;
}

TEST(CheckpointFaults, PowerCutAnywhereLeavesTheOldOrTheNew) {
  const TempFolder folder;
  const std::string from = folder / "real", to = folder / "copy";
  files.make_directory(from);
  RecordingFiles recording(files);
  save_tiny(recording, from, 1);
  const std::size_t saved_first = recording.events().size();
  save_tiny(recording, from, 2);
  const std::size_t saved_second = recording.events().size();
  prune_checkpoints(recording, from, 1);
  const std::vector<FileEvent> events = recording.events();
  ASSERT_GT(events.size(), saved_second);
  Rng rng(11, "power");
  for (std::size_t count = 0; count <= events.size(); ++count) {
    const std::int64_t least = count >= saved_second ? 2 : count >= saved_first ? 1 : -1;
    for (int variant = 0; variant < 5; ++variant) {
      std::vector<bool> keep(events.size());
      for (std::size_t i = 0; i < keep.size(); ++i)
        keep[i] = variant == 0 || (variant > 1 && rng.below(2) == 0);
      const std::int64_t step =
          after_power_cut(events, count, from, to, [&](std::size_t i) { return keep[i]; });
      ASSERT_TRUE(step == -1 || step == 1 || step == 2);
      ASSERT_GE(step, least) << "events " << count << " variant " << variant;
    }
  }
}

// A rename may reach the disk before data and names that were not synced: all must be before the folder gets
// its name.
TEST(CheckpointFaults, EverythingIsSyncedBeforeTheName) {
  const TempFolder folder;
  RecordingFiles recording(files);
  save_tiny(recording, folder.path(), 1);
  using Kind = FileEvent::Kind;
  std::set<std::string> unsynced;
  bool renamed = false, named_for_good = false;
  std::string last_file;
  for (const FileEvent& event : recording.events()) {
    if (event.kind == Kind::create) {
      EXPECT_FALSE(renamed);
      unsynced.insert(event.path);
      unsynced.insert(parent_path(event.path));
      last_file = event.path;
    } else if (event.kind == Kind::write) {
      unsynced.insert(event.path);
    } else if (event.kind == Kind::sync || event.kind == Kind::sync_directory) {
      unsynced.erase(event.path);
      named_for_good = renamed && event.path == folder.path();
    } else if (event.kind == Kind::rename) {
      EXPECT_TRUE(unsynced.empty()) << *unsynced.begin();
      renamed = true;
    }
  }
  EXPECT_TRUE(named_for_good);
  EXPECT_TRUE(last_file.ends_with("/manifest.json"));
}

}  // namespace
}  // namespace lode
