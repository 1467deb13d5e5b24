#include "observe/progress.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>

#include "gtest/gtest.h"
#include "observe/display.h"
#include "temp_folder.h"

namespace lode {
namespace {

ProgressFigures full_figures() {
  ProgressFigures f;
  f.step = 350;
  f.total = 1000;
  f.loss = 2.3141;
  f.learning_rate = 3e-4;
  f.grad_norm = 0.93;
  f.tokens_per_second = 12345;
  f.samples_per_second = 45.2;
  f.mfu = 0.461;
  f.cores = 1.94;
  f.memory = std::uint64_t{1} << 30;
  f.seconds_left = 185;
  return f;
}

TEST(Bar, NeverWiderThanAsked) {
  ProgressFigures extreme = full_figures();
  extreme.step = 123456789012;
  extreme.total = 999999999999;
  extreme.loss = -1.2345e-300;
  extreme.tokens_per_second = 1e300;
  extreme.seconds_left = 1e9;
  for (const ProgressFigures& f : {full_figures(), extreme, ProgressFigures{}}) {
    for (const bool utf8 : {false, true}) {
      for (int width = -1; width <= 300; ++width) {
        const std::string bar = progress_bar(f, width, utf8);
        EXPECT_LE(static_cast<int>(display_width(bar)), std::max(width, 0)) << bar;
        EXPECT_EQ(repair_utf8(bar), bar);
        EXPECT_EQ(bar.find('\n'), std::string::npos);
      }
    }
  }
}

TEST(Bar, TwentyColumnsShowStepAndLoss) {
  EXPECT_EQ(progress_bar(full_figures(), 20, true), "350/1000  loss 2.314");
  EXPECT_EQ(progress_bar(full_figures(), 10, true), "350/1000");
  EXPECT_EQ(progress_bar(full_figures(), 4, true), "350/");
}

TEST(Bar, WideTerminalShowsEverything) {
  EXPECT_EQ(progress_bar(full_figures(), 150, false),
            " 35% [##########....................] 350/1000  loss 2.314  lr 3.00e-04  12.3k tok/s  "
            "45.2 samples/s  MFU 46.1%  1.9 cores  1.00 GiB  3m05s left");
  const std::string bar = progress_bar(full_figures(), 200, true);
  EXPECT_NE(bar.find("▕██████████▌"), std::string::npos) << bar;
}

TEST(Bar, EndsAreFullAndEmpty) {
  ProgressFigures f;
  f.total = 4;
  EXPECT_EQ(progress_bar(f, 20, false), "  0% [.........] 0/4");
  f.step = 4;
  EXPECT_EQ(progress_bar(f, 20, false), "100% [#########] 4/4");
  f.step = 9;  // past the end
  EXPECT_EQ(progress_bar(f, 20, false), "100% [#########] 9/4");
  f.total = 0;
  EXPECT_EQ(progress_bar(f, 20, false), "step 9");
}

TEST(Duration, Text) {
  EXPECT_EQ(format_duration(0), "0s");
  EXPECT_EQ(format_duration(59.6), "1m00s");
  EXPECT_EQ(format_duration(185), "3m05s");
  EXPECT_EQ(format_duration(2 * 3600 + 4 * 60), "2h04m");
  EXPECT_EQ(format_duration(5 * 86400 + 3 * 3600), "5d03h");
  EXPECT_EQ(format_duration(kUnknown), "?");
  EXPECT_EQ(format_duration(-1), "?");
  EXPECT_EQ(format_duration(1e300), "?");
}

TEST(PlainLine, HasTheKnownFigures) {
  EXPECT_EQ(
      progress_line(full_figures()),
      "step 350/1000  loss 2.3141  lr 0.0003  grad norm 0.93  12345 tokens/s  45.2 samples/s  MFU 46.1 %  "
      "1.9 cores  1.00 GiB  3m05s left");
  ProgressFigures f;
  f.step = 2;
  EXPECT_EQ(progress_line(f), "step 2");
}

std::string read_all(int descriptor) {
  std::string text;
  std::array<char, 4096> buffer;
  for (ssize_t n; (n = ::read(descriptor, buffer.data(), buffer.size())) > 0;)
    text.append(buffer.data(), static_cast<std::size_t>(n));
  return text;
}

TEST(Progress, ElsewherePlainLinesAtLoggingSteps) {
  TempFolder folder;
  Log log(false);
  log.add_file(folder / "log.txt");
  {
    Progress progress(log, 0, 10, {.descriptor = -1});
    for (int step = 1; step <= 4; ++step) {
      ProgressFigures f;
      f.step = step;
      f.loss = step == 2 ? 1.5 : kUnknown;
      progress.update(f, step % 2 == 0);
    }
    EXPECT_GE(progress.seconds_left(), 0);
  }
  const std::string text = real_files().read(folder / "log.txt");
  EXPECT_NE(text.find("step 2/10  loss 1.5"), std::string::npos) << text;
  EXPECT_NE(text.find("step 4/10  loss 1.5"), std::string::npos) << text;
  EXPECT_EQ(text.find("step 3/10"), std::string::npos) << text;
}

TEST(Progress, DrawsSeldomAndTheLastStepAlways) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  Log log(false);
  {
    Progress progress(log, 0, 500, {.descriptor = ends[1], .terminal = true, .width = 60});
    for (int step = 1; step <= 500; ++step) {
      ProgressFigures f;
      f.step = step;
      progress.update(f, false);
    }
  }
  ::close(ends[1]);
  const std::string text = read_all(ends[0]);
  ::close(ends[0]);
  EXPECT_NE(text.find("500/500"), std::string::npos);
  EXPECT_TRUE(text.ends_with("\r\x1b[K")) << text;  // cleared at the end
  EXPECT_LT(std::ranges::count(text, 'K'), 100);    // 500 steps in no time
}

TEST(Progress, AClosedPipeAndAFullDeviceAreIgnored) {
  ::signal(SIGPIPE, SIG_IGN);  // as the application does
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  const int full = ::open("/dev/full", O_WRONLY);
  TempFolder folder;
  Log log(false);
  log.add_file(folder / "log.txt");
  for (const int descriptor : {ends[1], full, -1}) {
    Progress progress(log, 0, 2, {.descriptor = descriptor, .terminal = true, .width = 60});
    for (int step = 1; step <= 3; ++step) {
      ProgressFigures f;
      f.step = step;
      progress.update(f, true);
    }
    progress.clear();
  }
  ::close(ends[1]);
  if (full >= 0) ::close(full);
  // Once the terminal is gone the lines go to the log.
  EXPECT_NE(real_files().read(folder / "log.txt").find("step 3/2"), std::string::npos);
}

TEST(Progress, TimeThatWasNoTrainingDoesNotCount) {
  Log log(false);
  Progress progress(log, 0, 100, {.descriptor = -1});
  ProgressFigures f;
  f.step = 1;
  progress.update(f, false);
  EXPECT_TRUE(std::isnan(progress.seconds_left()));
  progress.exclude(1e6);
  f.step = 2;
  progress.update(f, false);
  EXPECT_EQ(progress.seconds_left(), 0);
}

TEST(ProgressOptions, UnicodeOnlyInAUnicodeLocale) {
  const auto utf8_with = [](const char* all, const char* lang) {
    ::setenv("LC_ALL", all, 1);
    ::setenv("LC_CTYPE", "", 1);
    ::setenv("LANG", lang, 1);
    return progress_options().utf8;
  };
  EXPECT_TRUE(utf8_with("", "en_US.UTF-8"));
  EXPECT_TRUE(utf8_with("C.utf8", "C"));
  EXPECT_FALSE(utf8_with("C", "en_US.UTF-8"));
  EXPECT_FALSE(utf8_with("", ""));
}

}  // namespace
}  // namespace lode
