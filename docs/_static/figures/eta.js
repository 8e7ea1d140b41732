// The soft threshold: what it does to an entry, how many entries it leaves, and the map.
"use strict";

(() => {
  const { add, curve, dot, grid, html, legend, name, percent, photo, picture, plot, slider, svg } = figureTools;

  add("eta", (place, data) => {
    const { path, edge, counts } = data.eta;
    const most = Math.max(...counts);
    const half = edge / 1.5;
    const across = "entry of the gradient";
    const ticks = [-half, 0, half];
    const upper = plot({ x: [-half, half], y: [-half, half], xs: ticks, ys: ticks, across, up: "entry of the map" });
    const lower = plot({
      x: [0, edge],
      y: [0, 1],
      xs: [0, 0.005, 0.01, 0.015],
      ys: [0, 0.25, 0.5, 0.75, 1],
      across: "eta",
      up: "share that is not zero",
    });
    const small = picture(data, "sparse map at this eta");
    const says = html("p", { class: "figure-says", "aria-live": "polite" });
    const entries = grid(-edge, edge / 100, 201);

    /** @param {number} chosen */
    function draw(chosen) {
      const row = path[chosen];
      const wide = (2 * edge) / counts.length;
      const bars = counts.map((each, i) => {
        const middle = -edge + (i + 0.5) * wide;
        const top = -half + (each / most) * half * 1.6;
        const [x, y] = [upper.x(middle - wide / 2), upper.y(top)];
        const look = Math.abs(middle) <= row.eta ? "figure-bar dropped" : "figure-bar";
        return svg("rect", { x, y, width: upper.x(wide) - upper.x(0) - 1, height: upper.y(-half) - y, class: look });
      });
      const shrunk = entries.map((g) => Math.sign(g) * Math.max(Math.abs(g) - row.eta, 0));
      upper.draw(...bars, curve(upper, entries, entries, "plain faint"), curve(upper, entries, shrunk, "ours"));
      const etas = path.map((each) => each.eta);
      lower.draw(
        curve(lower, etas, path.map((each) => each.pixels), "plain"),
        curve(lower, etas, path.map((each) => each.kept), "ours"),
        dot(lower, row.eta, row.pixels, "hollow"),
        dot(lower, row.eta, row.kept, "ours"),
      );
      small.show(row.map, `map, eta ${name(row.eta)}`);
      const [kept, pixels] = [percent(row.kept), percent(row.pixels)];
      says.textContent = `eta ${name(row.eta)}: ${kept} of the entries and ${pixels} of the pixels are not zero.`;
      upper.tell(`The soft threshold at eta ${name(row.eta)} over a histogram of the entries`);
      lower.tell(`Shares of entries and pixels that are not zero by eta; here ${kept} and ${pixels}`);
    }

    const words = (/** @type {number} */ value) => name(path[value].eta);
    place.append(
      slider("eta", { min: 0, max: path.length - 1, step: 1, value: 5 }, words, draw),
      html(
        "div",
        { class: "figure-beside" },
        html("div", { class: "figure-plots" }, upper.element, lower.element),
        html("div", { class: "figure-maps" }, photo(data), small.element),
      ),
      legend([
        ["ours", "soft threshold; entries kept"],
        ["plain", "no threshold; pixels kept"],
        ["bars", "how many entries"],
      ]),
      says,
    );
    draw(5);
  });
})();
