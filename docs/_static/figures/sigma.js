// Smoothing: the score along a line of noise, its slope, and the map, as the noise grows.
"use strict";

(() => {
  const { add, curve, grid, html, legend, name, percent, photo, picture, plot, slider } = figureTools;

  add("sigma", (place, data) => {
    const { levels, reach } = data.sigma;
    /** @type {[number, number]} */
    const x = [-reach, reach];
    const xs = [-40, 0, 40];
    const across = "distance from the photo";
    const upper = plot({ x, y: [7.5, 9.5], xs, ys: [7.5, 8, 8.5, 9, 9.5], across, up: "score", tall: 180 });
    const lower = plot({ x, y: [-0.07, 0.08], xs, ys: [-0.05, 0, 0.05], across, up: "slope of the score", tall: 180 });
    const small = picture(data, "map at this noise level");
    const says = html("p", { class: "figure-says", "aria-live": "polite" });

    /** @param {number[]} values */
    const points = (values) => grid(-reach, (2 * reach) / (values.length - 1), values.length);

    /** @param {number} chosen */
    function draw(chosen) {
      const [plain, row] = [levels[0], levels[chosen]];
      for (const [on, key] of /** @type {const} */ ([[upper, "score"], [lower, "slope"]])) {
        on.draw(
          curve(on, points(plain[key]), plain[key], chosen ? "plain faint" : "plain"),
          ...(chosen ? [curve(on, points(row[key]), row[key], "ours")] : []),
        );
        on.tell(`The ${key} along a line through the photo, without noise and at noise level ${row.noise_level}`);
      }
      const level = `noise level ${name(row.noise_level)}`;
      small.show(row.map, chosen ? `map, ${level}` : "the simple gradient");
      const ends = /** @type {const} */ ([Math.min(...row.slope), Math.max(...row.slope)]);
      says.textContent =
        `${chosen ? `N${level.slice(1)}` : "Without noise"}: the slope along the line lies between ` +
        `${name(ends[0])} and ${name(ends[1])}` +
        (chosen ? `; the map of ${data.budget} gradients is known to within ${percent(row.relative_error)}.` : ".");
    }

    const words = (/** @type {number} */ value) => name(levels[value].noise_level);
    place.append(
      slider("noise level", { min: 0, max: levels.length - 1, step: 1, value: 2 }, words, draw),
      html(
        "div",
        { class: "figure-beside" },
        html("div", { class: "figure-plots" }, upper.element, lower.element),
        html("div", { class: "figure-maps" }, photo(data), small.element),
      ),
      legend([["plain", "without noise"], ["ours", "averaged over noise"]]),
      says,
    );
    draw(2);
  });
})();
