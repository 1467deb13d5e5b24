#include "observe/chart.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/format.h"
#include "observe/display.h"
#include "observe/report.h"

namespace lode {
namespace {

constexpr double kLeft = 58, kRight = 22, kTop = 10, kBottom = 34;
constexpr int kColours = 6;
constexpr std::size_t kMostPoints = 1200;
constexpr double kLogRatio = 100;  // from this ratio of highest to lowest on, the axis is logarithmic

struct Frame {
  double width, height;
  Axis x, y;

  double place(const Axis& axis, double value) const {
    if (axis.logarithmic) return std::log(value / axis.low) / std::log(axis.high / axis.low);
    return (value - axis.low) / (axis.high - axis.low);
  }
  double px(double value) const { return kLeft + place(x, value) * (width - kLeft - kRight); }
  double py(double value) const { return height - kBottom - place(y, value) * (height - kTop - kBottom); }
};

std::vector<Point> finite_points(const std::vector<Point>& points) {
  std::vector<Point> out;
  std::ranges::copy_if(points, std::back_inserter(out),
                       [](const Point& p) { return std::isfinite(p.x) && std::isfinite(p.y); });
  return out;
}

struct Bounds {
  double x_low = std::numeric_limits<double>::infinity(), x_high = -x_low, y_low = x_low, y_high = -x_low;
};

Bounds bounds_of(const std::vector<Series>& series) {
  Bounds b;
  for (const Series& s : series) {
    for (const Point& p : s.points) {
      b.x_low = std::min(b.x_low, p.x);
      b.x_high = std::max(b.x_high, p.x);
      b.y_low = std::min(b.y_low, p.y);
      b.y_high = std::max(b.y_high, p.y);
    }
  }
  return b;
}

std::string axes_svg(const Frame& frame) {
  const double right = frame.width - kRight, bottom = frame.height - kBottom;
  std::string out;
  for (const double tick : frame.y.ticks) {
    const double y = frame.py(tick);
    out += format("<line class=\"grid\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>", kLeft, y,
                  right, y);
    out += format("<text class=\"tick\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>", kLeft - 7,
                  y + 4, tick_label(frame.y, tick));
  }
  for (const double tick : frame.x.ticks) {
    const double x = frame.px(tick);
    out += format("<line class=\"axis\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>", x, bottom,
                  x, bottom + 4);
    out += format("<text class=\"tick\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>", x,
                  bottom + 17, tick_label(frame.x, tick));
  }
  out += format("<line class=\"axis\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>", kLeft,
                bottom, right, bottom);
  out += format("<text class=\"tick\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">step</text>", right,
                bottom + 31);
  return out;
}

std::string series_svg(const Frame& frame, const Series& series, int colour) {
  const std::vector<Point> points = thin_out(series.points, kMostPoints);
  std::string out;
  if (points.size() > 1) {
    out = format("<polyline class=\"line{}\" style=\"stroke:var(--s{})\" points=\"",
                 series.faint ? " faint" : "", colour);
    for (const Point& p : points) out += format("{:.1f},{:.1f} ", frame.px(p.x), frame.py(p.y));
    out.pop_back();
    out += "\"/>";
  }
  if (!series.marks && points.size() > 1) return out;
  for (const Point& p : points) {
    out += format(
        "<circle r=\"3.5\" style=\"fill:var(--s{})\" cx=\"{:.1f}\" cy=\"{:.1f}\"><title>{}: {:.5g} at step "
        "{:.0f}</title></circle>",
        colour, frame.px(p.x), frame.py(p.y), escape_html(series.name), p.y, p.x);
  }
  return out;
}

std::string short_value(double value) {
  return std::abs(value) >= 10000 ? short_count(value) : format("{:.4g}", value);
}

std::string legend_html(const std::vector<Series>& series, const std::vector<int>& colours) {
  std::string out = "<div class=\"legend\">";
  for (std::size_t i = 0; i < series.size(); ++i) {
    out += format("<span><i{} style=\"background:var(--s{})\"></i>{} <b>{}</b></span>",
                  series[i].faint ? " class=\"faint\"" : "", colours[i], escape_html(series[i].name),
                  short_value(series[i].points.back().y));
  }
  return out + "</div>";
}

}  // namespace

std::vector<Point> smooth(const std::vector<Point>& points, double span) {
  const double keep = 1 - 2 / (std::max(span, 1.0) + 1);
  std::vector<Point> out;
  double sum = 0, weight = 0;
  for (const Point& p : points) {
    if (!std::isfinite(p.y)) continue;
    sum = sum * keep + p.y;
    weight = weight * keep + 1;
    out.push_back({p.x, sum / weight});
  }
  return out;
}

std::vector<Point> thin_out(const std::vector<Point>& points, std::size_t limit) {
  if (points.size() <= limit || limit < 4) return points;
  const std::size_t stretches = limit / 2;
  std::vector<Point> out = {points.front()};
  for (std::size_t i = 0; i < stretches; ++i) {
    const auto begin = points.begin() + static_cast<std::ptrdiff_t>(i * points.size() / stretches);
    const auto end = points.begin() + static_cast<std::ptrdiff_t>((i + 1) * points.size() / stretches);
    auto [low, high] =
        std::minmax_element(begin, end, [](const Point& a, const Point& b) { return a.y < b.y; });
    if (high < low) std::swap(low, high);
    out.push_back(*low);
    if (low != high) out.push_back(*high);
  }
  out.push_back(points.back());
  return out;
}

Axis linear_axis(double low, double high, int wanted, bool widen) {
  if (!(high > low)) {
    const double pad = low == 0 ? 1 : std::abs(low) * 0.1;
    low -= pad;
    high += pad;
  }
  const double rough =
      high / std::max(wanted, 1) - low / std::max(wanted, 1);  // the difference might overflow
  const double unit = std::pow(10, std::floor(std::log10(rough)));
  const double factor = rough / unit;
  const double step = unit * (factor <= 1 ? 1 : factor <= 2 ? 2 : factor <= 5 ? 5 : 10);
  double first = std::ceil(low / step - 1e-9), last = std::floor(high / step + 1e-9);
  if (widen) {
    first = std::floor(low / step + 1e-9);
    last = std::ceil(high / step - 1e-9);
    low = std::min(low, first * step);
    high = std::max(high, last * step);
  }
  Axis axis{low, high, false, {}};
  for (double i = first; i <= last && axis.ticks.size() < 50; ++i) axis.ticks.push_back(i * step);
  return axis;
}

Axis log_axis(double low, double high) {
  Axis axis{low, high, true, {}};
  const double decades = std::log10(high / low);
  // Few decades get 1, 2 and 5 each; many get every n-th power of ten.
  const int stride = std::max(1, static_cast<int>(std::ceil(decades / 6)));
  for (double power = std::floor(std::log10(low)); power <= std::log10(high); power += stride) {
    for (const double digit : {1.0, 2.0, 5.0}) {
      if (digit > 1 && decades > 3) break;
      const double tick = digit * std::pow(10, power);
      if (tick >= low && tick <= high) axis.ticks.push_back(tick);
    }
  }
  return axis;
}

std::string tick_label(const Axis& axis, double value) {
  const double largest = std::max(std::abs(axis.low), std::abs(axis.high));
  if (value == 0 || std::abs(value) < largest * 1e-12) return "0";
  return largest >= 10000 ? short_count(value) : format("{:.4g}", value);
}

std::string chart_html(const Chart& chart) {
  const std::string unit = chart.unit.empty() ? "" : " <small>" + escape_html(chart.unit) + "</small>";
  std::string out = format("<figure class=\"chart{}\"><figcaption>{}{}</figcaption>",
                           chart.wide ? " wide" : "", escape_html(chart.title), unit);
  std::vector<Series> series;
  for (const Series& s : chart.series) {
    series.push_back(s);
    series.back().points = finite_points(s.points);
    if (series.back().points.empty()) series.pop_back();
  }
  if (series.empty()) return out + "<p class=\"note\">no data</p></figure>";

  const Bounds b = bounds_of(series);
  const bool logarithmic = !chart.from_zero && b.y_low > 0 && b.y_high / b.y_low >= kLogRatio;
  Frame frame{chart.wide ? 1040.0 : 510.0,
              chart.wide ? 330.0 : 230.0,
              linear_axis(b.x_low, b.x_high, chart.wide ? 10 : 6),
              {}};
  if (logarithmic) {
    frame.y = log_axis(b.y_low, b.y_high);
  } else {
    frame.y = linear_axis(chart.from_zero ? std::min(0.0, b.y_low) : b.y_low, b.y_high, 6, true);
  }

  std::vector<int> colours;
  int colour = 0;
  for (const Series& s : series) {
    colours.push_back(colour % kColours);
    if (!s.faint) ++colour;
  }
  out += legend_html(series, colours);
  out += format("<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"{}\">", frame.width,
                frame.height, escape_html(chart.title));
  out += axes_svg(frame);
  for (std::size_t i = 0; i < series.size(); ++i) out += series_svg(frame, series[i], colours[i]);
  out += "</svg>";
  std::string note = chart.note;
  if (logarithmic) note += std::string(note.empty() ? "" : " ") + "Logarithmic axis.";
  if (!note.empty()) out += "<p class=\"note\">" + escape_html(note) + "</p>";
  return out + "</figure>";
}

}  // namespace lode
