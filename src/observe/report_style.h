// The style sheet of report.html. No fonts or images from elsewhere: the page must open without a network.
#pragma once

#include <string_view>

namespace lode {

inline constexpr std::string_view kReportStyle = R"css(
:root{--page:#f6f7f9;--card:#fff;--ink:#1c2330;--soft:#5c6675;--grid:#e3e7ec;--line:#c3cad3;
--s0:#2563c4;--s1:#d9541e;--s2:#12876b;--s3:#8450d8;--s4:#b07d00;--s5:#c02b74}
@media (prefers-color-scheme:dark){:root{--page:#14171c;--card:#1c2027;--ink:#e6e9ee;--soft:#9aa4b2;--grid:#2c323b;
--line:#4a5361;--s0:#6aa5ff;--s1:#ff9466;--s2:#45cba6;--s3:#b596ff;--s4:#e9bd4a;--s5:#f57fb5}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
main{max-width:1120px;margin:0 auto;padding:28px 20px 60px}
h1{font-size:26px;margin:0 0 4px;overflow-wrap:anywhere}
h2{font-size:17px;margin:0 0 8px}
h3{font-size:13px;margin:0;color:var(--soft);font-weight:600}
header p{margin:0;color:var(--soft);overflow-wrap:anywhere}
code{font:13px/1.5 ui-monospace,"DejaVu Sans Mono",monospace}
section{margin-top:24px;min-width:0}
.tiles{display:flex;flex-wrap:wrap;gap:10px}
.tiles div{background:var(--card);border:1px solid var(--grid);border-radius:8px;padding:10px 16px;flex:1 1 120px}
.tiles b{display:block;font-size:19px;font-weight:650;white-space:nowrap;font-variant-numeric:tabular-nums}
.tiles span{color:var(--soft);font-size:13px}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(420px,100%),1fr));gap:14px}
.chart{margin:0;background:var(--card);border:1px solid var(--grid);border-radius:8px;padding:12px 14px 8px;min-width:0}
.chart.wide{grid-column:1/-1}
figcaption{font-weight:650}
figcaption small{color:var(--soft);font-weight:400;font-size:13px}
svg{display:block;width:100%;height:auto}
.grid{stroke:var(--grid)}
.axis{stroke:var(--line)}
.tick{fill:var(--soft);font-size:12px}
.line{fill:none;stroke-width:2;stroke-linejoin:round}
.faint{stroke-width:1;opacity:.5}
.legend{display:flex;flex-wrap:wrap;gap:2px 16px;font-size:13px;color:var(--soft);min-height:21px}
.legend i{display:inline-block;width:14px;height:3px;border-radius:2px;margin-right:6px;vertical-align:middle}
.legend b{color:var(--ink);font-weight:600;font-variant-numeric:tabular-nums}
.note{color:var(--soft);font-size:13px;margin:4px 0}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(420px,100%),1fr));gap:0 24px;align-items:start}
.scroll{overflow-x:auto;background:var(--card);border:1px solid var(--grid);border-radius:8px}
table{border-collapse:collapse;width:100%;font-size:14px}
th,td{text-align:left;vertical-align:top;padding:5px 12px;border-bottom:1px solid var(--grid);overflow-wrap:anywhere}
th{color:var(--soft);font-weight:600;white-space:nowrap}
td:first-child{color:var(--soft);min-width:110px}
tbody tr:last-child td{border-bottom:0}
.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.sample{background:var(--card);border:1px solid var(--grid);border-radius:8px;padding:10px 14px;margin-top:8px}
.sample p{margin:2px 0 0;white-space:pre-wrap;overflow-wrap:anywhere;font-family:Georgia,"DejaVu Serif",serif}
summary{cursor:pointer;color:var(--soft);margin-bottom:8px}
@media (max-width:700px){.wide .tick{font-size:20px}}
@media print{body{background:#fff}.chart,.sample,table{break-inside:avoid}}
)css";

}  // namespace lode
