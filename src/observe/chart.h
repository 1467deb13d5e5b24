// Line charts as inline SVG, coloured by the page's CSS variables (--s0 ... --s5, --ink, --grid).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lode {

struct Point {
  double x, y;
};

struct Series {
  std::string name;
  std::vector<Point> points;  // in order of x; points that are not finite are left out
  bool faint =
      false;  // drawn thin and pale, in the colour of the next series, without an entry in the legend
  bool marks = false;  // a dot on each point
};

struct Chart {
  std::string title;
  std::string unit;  // of y, stated in the title
  std::string note;  // a line below
  std::vector<Series> series;
  bool from_zero = false;  // the axis of y begins at 0
  bool wide = false;
};

// A <figure>. Says "no data" when no series has a point.
std::string chart_html(const Chart& chart);

// Exponential average that starts without bias; span as in "the last `span` points".
std::vector<Point> smooth(const std::vector<Point>& points, double span);
// At most about `limit` points, keeping the lowest and the highest of each stretch.
std::vector<Point> thin_out(const std::vector<Point>& points, std::size_t limit);

struct Axis {
  double low, high;  // covers the data
  bool logarithmic = false;
  std::vector<double> ticks;  // within [low, high]
};
// About `wanted` round ticks; widen: the axis begins and ends at one. low <= high, finite.
Axis linear_axis(double low, double high, int wanted, bool widen = false);
Axis log_axis(double low, double high);  // low > 0
std::string tick_label(const Axis& axis, double value);

}  // namespace lode
