// A chart over time. Its library is read when the first chart is shown.

import { useEffect, useRef, useState } from "preact/hooks";
import { html } from "./parts.js";

const HEIGHT = 180;

/** Returns a colour of the style sheet. */
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Returns the marks of a time axis: days, or times of a day. */
function marks(_, times) {
  const isLong = times.at(-1) - times[0] > 86_400;
  const words = times.map((second) => {
    const date = new Date(second * 1000);
    if (isLong) return date.toLocaleDateString([], { month: "short", day: "numeric", timeZone: "UTC" });
    return date.toLocaleTimeString([], { hour12: false });
  });
  return words.map((word, at) => (word === words[at - 1] ? "" : word));
}

function options(width, label, format, bars, Plot) {
  const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
  const series = { label, stroke: colour("--accent"), width: 2, fill: colour("--blue-bg"), points: { show: false } };
  if (bars) series.paths = Plot.paths.bars({ size: [0.6, 40] });
  else series.paths = Plot.paths.stepped({ align: 1 });
  return {
    width, height: HEIGHT, legend: { show: false }, cursor: { show: false },
    scales: { y: { range: (_, low, high) => [0, high > 0 ? high * 1.1 : 1] } },
    series: [{}, series],
    axes: [{ ...axis, space: 90, values: marks }, { ...axis, size: 64, values: (_, values) => values.map(format) }],
  };
}

/**
 * Shows values over time. `times` are seconds since 1970, ascending. `summary` says the same in words, for readers who see
 * no picture.
 */
export function Chart({ times, values, label, format, bars = false, summary }) {
  const box = useRef(null);
  const plot = useRef(null);
  const data = useRef();
  data.current = [times, values];
  const [Plot, setPlot] = useState(null);
  const [fault, setFault] = useState("");
  useEffect(() => {
    import("./uplot.js").then((module) => setPlot(() => module.default), () => setFault("The chart could not be read."));
  }, []);
  useEffect(() => {
    const element = box.current;
    if (!Plot || !element) return undefined;
    const draw = () => {
      plot.current?.destroy();
      plot.current = new Plot(options(element.clientWidth, label, format, bars, Plot), data.current, element);
    };
    draw();
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", draw);
    const grow = new ResizeObserver(() => plot.current?.setSize({ width: element.clientWidth, height: HEIGHT }));
    grow.observe(element);
    return () => {
      scheme.removeEventListener("change", draw);
      grow.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [Plot]);
  useEffect(() => plot.current?.setData([times, values]), [times, values]);
  return html`<figure class="chart"><figcaption class="small quiet">${label}. ${summary}</figcaption>
    ${fault ? html`<p class="quiet">${fault}</p>` : html`<div ref=${box} aria-hidden="true"></div>`}</figure>`;
}
