#include "train/signals.h"

#include <csignal>
#include <iterator>

namespace lode {
namespace {

// Signals belong to the process, so this is the one place that is global.
volatile std::sig_atomic_t received = 0;
constexpr int kSignals[] = {SIGTERM, SIGINT, SIGHUP};
struct sigaction former[std::size(kSignals)];

void on_signal(int signal) {
  received = signal;
  // The next one has its usual effect.
  for (const int s : kSignals) std::signal(s, SIG_DFL);
}

}  // namespace

StopSignals::StopSignals() {
  received = 0;
  struct sigaction action = {};
  action.sa_handler = on_signal;
  for (std::size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &action, &former[i]);
}

StopSignals::~StopSignals() {
  for (std::size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &former[i], nullptr);
}

bool StopSignals::requested() {
  return received != 0;
}

const char* StopSignals::name() {
  switch (received) {
    case SIGTERM:
      return "SIGTERM";
    case SIGINT:
      return "SIGINT";
    case SIGHUP:
      return "SIGHUP";
    default:
      return "";
  }
}

}  // namespace lode
