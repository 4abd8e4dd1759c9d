// The figures of the dashboard, each with the same numbers as a table for screen readers and for copying.

import { compact, count, element, number } from "./page.js";

const { Chart } = globalThis;

const LIGHT = {
  ink: "#1a2230",
  soft: "#566276",
  line: "#d8dee8",
  bars: ["#2457c5", "#c2570c", "#1a7f4b", "#8e3bb0", "#0f7f8c", "#a8324a", "#6b6f00", "#5b6472"],
};
const DARK = {
  ink: "#e6eaf1",
  soft: "#a3aebf",
  line: "#333d4c",
  bars: ["#82aaff", "#ffab70", "#63d297", "#d7a3f0", "#6fd3de", "#ff9aac", "#d7d96b", "#a3aebf"],
};
const colours = () => (document.documentElement.dataset.look === "dark" ? DARK : LIGHT);

// Chart.js has no error bars: a dataset's `ends` are drawn as whiskers, along the axis of the values.
const whiskers = {
  id: "whiskers",
  afterDatasetsDraw(chart) {
    const { ctx, scales } = chart;
    const lying = chart.options.indexAxis === "y";
    const values = lying ? scales.x : scales.y;
    const line = (from, to) => {
      ctx.moveTo(...(lying ? from : [from[1], from[0]]));
      ctx.lineTo(...(lying ? to : [to[1], to[0]]));
    };
    chart.data.datasets.forEach((dataset, index) => {
      if (!dataset.ends || !chart.isDatasetVisible(index)) return;
      ctx.save();
      ctx.strokeStyle = colours().ink;
      ctx.lineWidth = 1.5;
      chart.getDatasetMeta(index).data.forEach((bar, place) => {
        if (dataset.data[place] === null || !dataset.ends[place]) return;
        const [low, high] = dataset.ends[place].map((end) => values.getPixelForValue(end));
        const [across, size = 15] = lying ? [bar.y, bar.height] : [bar.x, bar.width];
        const cap = Math.min(5, size / 3);
        ctx.beginPath();
        line([low, across], [high, across]);
        for (const end of [low, high]) line([end, across - cap], [end, across + cap]);
        ctx.stroke();
      });
      ctx.restore();
    });
  },
};

// The median of a histogram and its interval, whose bars are the bins between `edges`.
const median = {
  id: "median",
  beforeDatasetsDraw(chart) {
    const { band } = chart.options;
    if (!band) return;
    const { ctx, chartArea, scales } = chart;
    const [first, second] = band.edges;
    const [value, low, high] = [band.value, band.low, band.high].map((at) =>
      scales.x.getPixelForValue((at - first) / (second - first) - 0.5),
    );
    ctx.save();
    ctx.fillStyle = `${colours().ink}18`;
    ctx.fillRect(low, chartArea.top, high - low, chartArea.height);
    ctx.strokeStyle = colours().ink;
    ctx.setLineDash([5, 4]);
    ctx.beginPath();
    ctx.moveTo(value, chartArea.top);
    ctx.lineTo(value, chartArea.bottom);
    ctx.stroke();
    ctx.restore();
  },
};

// Lines at the places where a curve has changed.
const marks = {
  id: "marks",
  beforeDatasetsDraw(chart) {
    const { ctx, chartArea, scales } = chart;
    ctx.save();
    ctx.strokeStyle = colours().bars[1];
    ctx.lineWidth = 2;
    ctx.setLineDash([5, 4]);
    ctx.beginPath();
    for (const place of chart.options.marks ?? []) {
      const x = scales.x.getPixelForValue(place);
      ctx.moveTo(x, chartArea.top);
      ctx.lineTo(x, chartArea.bottom);
    }
    ctx.stroke();
    ctx.restore();
  },
};

// A label that fits beside a bar; the whole one is in the table.
const shortened = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

function scale(title, more = {}) {
  const { soft, line } = colours();
  return {
    title: { display: Boolean(title), text: title, color: soft },
    ticks: { color: soft, maxRotation: 60, ...more.ticks },
    grid: { color: line },
    border: { color: line },
    ...Object.fromEntries(Object.entries(more).filter(([name]) => name !== "ticks")),
  };
}

// A legend of lines as they are drawn, with their dashes.
const lineLabels = {
  usePointStyle: true,
  pointStyleWidth: 30,
  generateLabels: (chart) =>
    chart.data.datasets.map(({ label, borderColor, borderDash }, index) => ({
      text: label,
      datasetIndex: index,
      hidden: !chart.isDatasetVisible(index),
      pointStyle: "line",
      strokeStyle: borderColor,
      fontColor: colours().ink,
      lineDash: borderDash ?? [],
      lineWidth: 2,
    })),
};

// Of the ticks of a logarithmic axis, those that begin with one of these digits.
const beginning = (digits, written) => (value) =>
  digits.includes(value.toExponential(6).replace(/\.?0+e.*$/, "")) ? written(value) : "";

function options(x, y, legend, label, lines = false) {
  return {
    animation: false,
    responsive: true,
    maintainAspectRatio: false,
    interaction: { mode: "nearest", axis: "x", intersect: false },
    scales: { x, y },
    plugins: {
      legend: { display: legend, labels: { color: colours().ink, ...(lines ? lineLabels : { boxWidth: 22 }) } },
      tooltip: { callbacks: { label } },
    },
  };
}

// One figure: a caption, a chart or an image, and the table behind it. It is kept while the campaign is shown, so that
// an update changes numbers only: an open table stays open and the focus stays where it is.
export class Figure {
  constructor(caption, image = false) {
    this.canvas = element("canvas");
    this.canvas.setAttribute("role", "img");
    this.image = image;
    this.caption = element("figcaption", { textContent: caption });
    this.table = element("table");
    const scroll = element("div", { className: "scroll", tabIndex: 0, role: "region" }, this.table);
    scroll.setAttribute("aria-label", `Table: ${caption}`);
    const plot = image ? this.canvas : element("div", { className: "plot" }, this.canvas);
    const behind = element("details", {}, element("summary", { textContent: "Show as a table" }), scroll);
    this.shown = [plot, behind];
    this.text = element("p", { className: "text", hidden: true });
    this.root = element(
      "figure",
      {},
      this.caption,
      this.text,
      plot,
      behind,
    );
    this.chart = null;
  }

  // A sentence above the picture, or in its place.
  tell(text, hasPicture) {
    this.text.hidden = false;
    for (const part of this.shown) part.hidden = !hasPicture;
    if (this.text.textContent !== text) this.text.textContent = text;
  }

  describe(text) {
    this.canvas.setAttribute("aria-label", `${this.caption.textContent}. ${text}`);
  }

  rows(heads, rows) {
    const head = element("tr", {}, ...heads.map((text) => element("th", { scope: "col", textContent: text })));
    const body = rows.map((row) =>
      element(
        "tr",
        {},
        ...row.map((text, place) =>
          place ? element("td", { textContent: text }) : element("th", { scope: "row", textContent: text }),
        ),
      ),
    );
    this.table.replaceChildren(element("thead", {}, head), element("tbody", {}, ...body));
  }

  draw(type, data, made) {
    if (this.chart) {
      this.chart.data = data;
      this.chart.options = made;
      this.chart.update("none");
    } else {
      this.chart = new Chart(this.canvas, { type, data, options: made, plugins: [whiskers, median, marks] });
    }
  }

  remove() {
    this.chart?.destroy();
    this.root.remove();
  }

  // series: [{label, values, errors or ends}], over the same names. Pale are bars that say nothing: those within their
  // error of zero or without an error, or the given ones.
  bars(names, series, what, { pale = null, standing = false, list = false, band = null, limits = null } = {}) {
    const { bars } = colours();
    const within = (value, error) => error === null || Math.abs(value) <= error;
    const around = ({ values, errors }) =>
      errors && values.map((value, place) => (errors[place] === null ? null : [value - errors[place], value + errors[place]]));
    const datasets = series.map(({ label, values, errors, ends = around({ values, errors }) }, index) => ({
      label,
      data: values,
      errors,
      ends,
      backgroundColor: values.map((value, place) =>
        (pale ? pale[place] : errors && within(value, errors[place]))
          ? `${bars[index % bars.length]}40`
          : bars[index % bars.length],
      ),
      borderColor: bars[index % bars.length],
      borderWidth: 1,
      maxBarThickness: 48,
    }));
    // The axis holds the whiskers.
    const reached = datasets.flatMap(({ data, ends }) => data.flatMap((value, place) => ends?.[place] ?? value ?? []));
    const [plot, least, most] = [this.canvas.parentElement, Math.min(0, ...reached), Math.max(0, ...reached)];
    // Bars lie where names are long or the page is narrow, each with a line of its own.
    const narrow = plot.clientWidth < 600;
    const lying = !standing && (list || narrow || Math.max(...names.map((name) => name.length)) > 4);
    plot.style.height = lying ? `${Math.max(8, 4 + 1.4 * names.length * Math.max(1, 0.6 * series.length))}rem` : "";
    const inside = limits ? { min: limits[0], ...(most > 0.9 * limits[1] ? { max: limits[1] } : {}) } : {};
    const value = scale(what, { suggestedMin: least, suggestedMax: most, ...inside });
    const name = scale("", {
      ticks: { autoSkip: !lying, callback: (_, place) => shortened(names[place], narrow ? 14 : 32) },
    });
    const label = ({ dataset, dataIndex, raw }) =>
      `${dataset.label}: ${number(raw)}${dataset.ends?.[dataIndex] ? `, ${dataset.ends[dataIndex].map(number).join(" to ")}` : ""}`;
    const made = options(lying ? value : name, lying ? name : value, series.length > 1, label);
    Object.assign(made, { indexAxis: lying ? "y" : "x", band });
    made.interaction.axis = lying ? "y" : "x";
    this.draw("bar", { labels: names, datasets }, made);
    this.rows(
      ["", ...series.flatMap(({ label: head, errors }) => (errors ? [head, `± (${head})`] : [head]))],
      names.map((name, place) => [
        name,
        ...series.flatMap(({ values, errors }) =>
          errors ? [number(values[place]), number(errors[place])] : [number(values[place])],
        ),
      ]),
    );
  }

  error({ measured, predicted, bias }) {
    const { bars, soft } = colours();
    const points = (pairs) => pairs.map(([x, y]) => ({ x, y }));
    const line = { pointRadius: 0, borderWidth: 2, pointStyle: "line" };
    const now = measured.length ? measured[measured.length - 1][0] : predicted[0][0];
    const datasets = [
      {
        ...line,
        label: "Measured",
        data: points(measured),
        borderColor: bars[0],
        backgroundColor: bars[0],
        pointRadius: 3,
        pointStyle: "circle",
      },
      {
        ...line,
        label: "Predicted",
        data: points(predicted),
        borderColor: bars[1],
        backgroundColor: bars[1],
        borderDash: [6, 5],
      },
    ];
    if (bias > 0) {
      const ends = [predicted[0][0], predicted[predicted.length - 1][0]];
      datasets.push({
        ...line,
        label: "Bias that remains",
        data: ends.map((x) => ({ x, y: bias })),
        borderColor: soft,
        backgroundColor: soft,
        borderDash: [2, 4],
      });
    }
    const ticks = { callback: beginning(["1", "2", "5"], compact), maxRotation: 0, autoSkipPadding: 12 };
    const small = { callback: beginning(["1", "2", "3", "5", "7"], number), autoSkipPadding: 8 };
    const x = scale("messages", {
      type: "logarithmic",
      min: predicted[0][0] / 1.3, // the first point is inside
      max: predicted[predicted.length - 1][0],
      ticks,
    });
    // A logarithmic axis of less than half a decade would have no numbers.
    const errors = [...measured, ...predicted].map(([, error]) => error);
    const wide = Math.max(...errors) > 3 * Math.min(...errors, ...(bias > 0 ? [bias] : []));
    const y = scale("standard error", wide ? { type: "logarithmic", ticks: small } : { ticks: { callback: number } });
    this.draw(
      "line",
      { datasets },
      options(
        x,
        y,
        true,
        ({ dataset, parsed }) => `${dataset.label}: ${number(parsed.y)} at ${compact(parsed.x)} messages`,
        true,
      ),
    );
    const known = new Map(measured),
      foretold = new Map(predicted);
    const places = [
      ...new Set([...known.keys(), ...predicted.map(([place]) => place).filter((place) => place > now)]),
    ].sort((one, other) => one - other);
    this.rows(
      ["Messages", "Measured", "Predicted"],
      places.map((place) => [count(place), number(known.get(place)), number(foretold.get(place))]),
    );
  }

  // A curve over periods: each by itself as a dot, the smoothed curve in its band, and lines where it has changed.
  curve({ raw, value, low, high }, period, changed) {
    const { bars, soft } = colours(), [colour] = bars, isOne = value.length === 1;
    const names = value.map((_, place) => String(place + 1));
    const line = { borderColor: colour, pointRadius: 0, pointHitRadius: 0, borderWidth: 0 };
    const ends = isOne ? { ends: [[low[0], high[0]]], pointRadius: 5 } : { pointStyle: "line" };
    const datasets = [
      { ...line, label: "Smoothed", data: value, backgroundColor: colour, borderWidth: 2, ...ends },
      { ...line, label: "Band of 95 %", data: high, backgroundColor: `${colour}33`, fill: "+1", pointStyle: "rect" },
      { ...line, label: "", data: low, backgroundColor: "transparent" },
      { ...line, label: `Each ${period} by itself`, data: raw, showLine: false, backgroundColor: soft, borderColor: soft, pointRadius: 2.5 },
    ];
    const label = ({ dataset, parsed }) => `${dataset.label}: ${number(parsed.y)}`;
    const y = scale("", { ticks: { callback: number } });
    const made = options(scale(period, { ticks: { maxRotation: 0, autoSkipPadding: 12 } }), y, true, label);
    made.plugins.legend.labels = { color: colours().ink, usePointStyle: true, boxHeight: 8, filter: ({ text }) => text !== "" };
    made.plugins.tooltip.filter = ({ dataset, parsed }) => dataset.label !== "" && parsed.y !== null;
    made.marks = changed;
    this.draw("line", { labels: names, datasets }, made);
    const heads = [period[0].toUpperCase() + period.slice(1), "By itself", "Smoothed", "Low", "High"];
    this.rows(heads, names.map((name, place) => [name, ...[raw, value, low, high].map((own) => number(own[place]))]));
  }

  // The table is all there is.
  tabulate(heads, rows) {
    const [plot, behind] = this.shown;
    plot.hidden = true;
    behind.open = true;
    behind.firstChild.hidden = true;
    this.rows(heads, rows);
  }

  arrivals(hours) {
    const { bars } = colours();
    const names = hours.map(([hour]) => hourName(hour));
    const datasets = [
      { label: "Messages", data: hours.map(([, messages]) => messages), backgroundColor: bars[2], maxBarThickness: 36 },
    ];
    const y = scale("messages", { beginAtZero: true, ticks: { callback: (value) => compact(value), precision: 0 } });
    this.draw(
      "bar",
      { labels: names, datasets },
      options(scale("hour (UTC)"), y, false, ({ raw }) => `${count(raw)} messages`),
    );
    this.rows(
      ["Hour (UTC)", "Messages"],
      hours.map(([, messages], place) => [names[place], count(messages)]),
    );
  }

  // values: a flat image; black is `low` and white is `high`.
  picture(values, [height, width, channels = 1], low, high) {
    this.canvas.width = width;
    this.canvas.height = height;
    const context = this.canvas.getContext("2d");
    const image = context.createImageData(width, height);
    for (let pixel = 0; pixel < width * height; pixel += 1) {
      for (let channel = 0; channel < 3; channel += 1) {
        const value = values[pixel * channels + (channels === 3 ? channel : 0)];
        image.data[4 * pixel + channel] = value === null ? 128 : (255 * (value - low)) / (high - low || 1);
      }
      image.data[4 * pixel + 3] = 255;
    }
    context.putImageData(image, 0, 0);
    const line = (row) =>
      Array.from({ length: width }, (_, column) =>
        Array.from({ length: channels }, (_, channel) =>
          number(values[(row * width + column) * channels + channel]),
        ).join(" / "),
      );
    if (width * height <= 4096)
      this.rows(
        ["Row", ...Array.from({ length: width }, (_, column) => String(column))],
        Array.from({ length: height }, (_, row) => [String(row), ...line(row)]),
      );
    else
      this.rows(
        ["", "Value"],
        [
          ["Lowest", number(low)],
          ["Highest", number(high)],
          ["Pixels", `${count(width * height)}; all are in the CSV`],
        ],
      );
  }
}

function hourName(seconds) {
  return new Date(1000 * seconds).toISOString().slice(5, 16).replace("T", " ");
}
