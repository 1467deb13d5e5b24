#include "observe/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "core/format.h"
#include "observe/display.h"

namespace lode {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kRedraw = std::chrono::milliseconds(200);
constexpr double kSmoothing = 0.1;  // weight of the newest step
constexpr int kFewestCells = 8, kMostCells = 30;

struct Piece {
  std::string text;
  int rank;  // 0 is kept longest
};

std::string ratio_text(const ProgressFigures& f) {
  return f.total > 0 ? format("{}/{}", f.step, f.total) : format("step {}", f.step);
}

double share_done(const ProgressFigures& f) {
  if (f.total <= 0) return kUnknown;
  return std::clamp(static_cast<double>(f.step) / static_cast<double>(f.total), 0.0, 1.0);
}

void add_known(std::vector<Piece>& pieces, double value, std::string text, int rank) {
  if (!std::isnan(value)) pieces.push_back({std::move(text), rank});
}

// In the order they are shown.
std::vector<Piece> pieces_of(const ProgressFigures& f) {
  std::vector<Piece> pieces = {{ratio_text(f), 0}};
  add_known(pieces, f.loss, format("loss {:.4g}", f.loss), 1);
  add_known(pieces, f.learning_rate, format("lr {:.2e}", f.learning_rate), 5);
  add_known(pieces, f.tokens_per_second, short_count(f.tokens_per_second) + " tok/s", 3);
  add_known(pieces, f.samples_per_second, short_count(f.samples_per_second) + " samples/s", 8);
  add_known(pieces, f.mfu, format("MFU {:.1f}%", 100 * f.mfu), 4);
  add_known(pieces, f.cores, format("{:.1f} cores", f.cores), 7);
  if (f.memory > 0) pieces.push_back({format_bytes(f.memory), 6});
  add_known(pieces, f.seconds_left, format_duration(f.seconds_left) + " left", 2);
  return pieces;
}

std::string cells(double share, int count, bool utf8) {
  std::string out;
  if (!utf8) {
    const int full = static_cast<int>(share * count);
    out.append(static_cast<std::size_t>(full), '#').append(static_cast<std::size_t>(count - full), '.');
    return "[" + out + "]";
  }
  static constexpr std::string_view kEighths[] = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"};
  const int eighths = static_cast<int>(share * count * 8);
  for (int i = 0; i < count; ++i) out += kEighths[std::clamp(eighths - 8 * i, 0, 8)];
  return "▕" + out + "▏";
}

// False when the other end is gone.
bool write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(descriptor, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

int terminal_width(int descriptor) {
  winsize size{};
  if (::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

void keep_known(double& old, double value) {
  if (!std::isnan(value)) old = value;
}

}  // namespace

std::string format_duration(double seconds) {
  // Beyond a thousand years the estimate says nothing, and an integer might not hold it.
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 3.2e10) return "?";
  const auto s = static_cast<std::int64_t>(std::llround(seconds));
  if (s < 60) return format("{}s", s);
  if (s < 3600) return format("{}m{:02}s", s / 60, s % 60);
  if (s < 86400) return format("{}h{:02}m", s / 3600, s / 60 % 60);
  return format("{}d{:02}h", s / 86400, s / 3600 % 24);
}

std::string progress_bar(const ProgressFigures& f, int width, bool utf8) {
  if (width <= 0) return "";
  const auto room = static_cast<std::size_t>(width);
  const std::vector<Piece> pieces = pieces_of(f);
  std::vector<const Piece*> by_rank;
  for (const Piece& piece : pieces) by_rank.push_back(&piece);
  std::ranges::sort(by_rank, {}, &Piece::rank);

  // The first that does not fit and all behind it are left out, so that figures do not come and go.
  std::size_t used = 0;
  int last_rank = -1;
  for (const Piece* piece : by_rank) {
    const std::size_t needed = piece->text.size() + (used > 0 ? 2 : 0);
    if (used + needed > room) break;
    used += needed;
    last_rank = piece->rank;
  }
  if (last_rank < 0) return pieces.front().text.substr(0, room);

  std::string out;
  const double share = share_done(f);
  const int left = width - static_cast<int>(used) - 8;  // two ends, "100% " and a space
  if (!std::isnan(share) && left >= kFewestCells) {
    out = format("{:3.0f}% ", std::floor(100 * share)) + cells(share, std::min(left, kMostCells), utf8) + " ";
  }
  bool first = true;
  for (const Piece& piece : pieces) {
    if (piece.rank > last_rank) continue;
    if (!first) out += "  ";
    out += piece.text;
    first = false;
  }
  return out;
}

std::string progress_line(const ProgressFigures& f) {
  std::string out = "step ";
  out += f.total > 0 ? format("{}/{}", f.step, f.total) : format("{}", f.step);
  const auto add = [&out](double value, std::string_view text) {
    if (!std::isnan(value)) out.append("  ").append(text);
  };
  add(f.loss, format("loss {:.5g}", f.loss));
  add(f.learning_rate, format("lr {:.3g}", f.learning_rate));
  add(f.grad_norm, format("grad norm {:.3g}", f.grad_norm));
  add(f.tokens_per_second, format("{:.0f} tokens/s", f.tokens_per_second));
  add(f.samples_per_second, format("{:.4g} samples/s", f.samples_per_second));
  add(f.mfu, format("MFU {:.1f} %", 100 * f.mfu));
  add(f.cores, format("{:.1f} cores", f.cores));
  if (f.memory > 0) out += "  " + format_bytes(f.memory);
  add(f.seconds_left, format_duration(f.seconds_left) + " left");
  return out;
}

ProgressOptions progress_options(int descriptor) {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  ProgressOptions options;
  options.descriptor = descriptor;
  options.terminal = ::isatty(descriptor) == 1 && variable("TERM") != "dumb";
  std::string locale = variable("LC_ALL");
  if (locale.empty()) locale = variable("LC_CTYPE");
  if (locale.empty()) locale = variable("LANG");
  std::ranges::transform(locale, locale.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  options.utf8 = locale.find("utf-8") != std::string::npos || locale.find("utf8") != std::string::npos;
  return options;
}

Progress::Progress(Log& log, std::int64_t start_step, std::int64_t total_steps, ProgressOptions options)
    : log_(log),
      options_(options),
      updated_(Clock::now()),
      drawn_(Clock::now() - kRedraw),
      start_step_(start_step) {
  last_.step = start_step;
  last_.total = total_steps;
}

Progress::~Progress() {
  clear();
}

double Progress::seconds_left() const {
  return last_.total > 0
             ? step_seconds_ * static_cast<double>(std::max<std::int64_t>(last_.total - last_.step, 0))
             : kUnknown;
}

void Progress::update(const ProgressFigures& figures, bool logging) {
  const auto now = Clock::now();
  const std::int64_t steps = figures.step - last_.step;
  // The first step makes primitives and touches memory: it says nothing about the others.
  if (steps > 0 && last_.step > start_step_) {
    const double spent = std::chrono::duration<double>(now - updated_).count() - excluded_;
    const double seconds = std::max(spent, 0.0) / static_cast<double>(steps);
    step_seconds_ =
        std::isnan(step_seconds_) ? seconds : step_seconds_ + kSmoothing * (seconds - step_seconds_);
  }
  updated_ = now;
  excluded_ = 0;
  last_.step = figures.step;
  keep_known(last_.loss, figures.loss);
  keep_known(last_.learning_rate, figures.learning_rate);
  keep_known(last_.grad_norm, figures.grad_norm);
  keep_known(last_.tokens_per_second, figures.tokens_per_second);
  keep_known(last_.samples_per_second, figures.samples_per_second);
  keep_known(last_.mfu, figures.mfu);
  keep_known(last_.cores, figures.cores);
  if (figures.memory > 0) last_.memory = figures.memory;
  last_.seconds_left = seconds_left();

  if (options_.terminal) {
    const bool last = last_.total > 0 && last_.step >= last_.total;
    if (last || now - drawn_ >= kRedraw) draw();
  } else if (logging) {
    log_.info("{}", progress_line(last_));
  }
}

void Progress::draw() {
  drawn_ = Clock::now();
  // One column stays free: a full line would wrap. The cursor goes back, so that a line of others overwrites
  // the bar.
  const int width = (options_.width > 0 ? options_.width : terminal_width(options_.descriptor)) - 1;
  visible_ = true;
  if (!write_all(options_.descriptor, "\r" + progress_bar(last_, width, options_.utf8) + "\x1b[K\r")) {
    options_.terminal = false;  // the terminal is gone; its lines go to the log from here on
    visible_ = false;
  }
}

void Progress::clear() {
  if (!visible_) return;
  visible_ = false;
  drawn_ -= kRedraw;
  if (!write_all(options_.descriptor, "\r\x1b[K")) options_.terminal = false;
}

void Progress::exclude(double seconds) {
  excluded_ += seconds;
}

}  // namespace lode
