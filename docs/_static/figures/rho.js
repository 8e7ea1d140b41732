// The envelope in one dimension: a parabola under a graph touches it at the minimiser, and its top is the envelope.
"use strict";

(() => {
  const { add, choice, curve, dot, grid, html, legend, line, name, picture, plot, slider } = figureTools;
  /**
   * A function at points, and how it is drawn.
   * @typedef {{up: string, y: [number, number], ys: number[]}} Upright
   * @typedef {object} Shown
   * @property {number[]} s
   * @property {number[]} f
   * @property {number[]} slope
   * @property {[number, number]} x
   * @property {number[]} xs
   * @property {Upright} above
   * @property {Upright} below
   * @property {(t: number, rho: number) => Solved} solve
   *
   * @typedef {{at: number, low: number, others: number[][]}} Solved the minimiser, the value there, further valleys
   */

  const BARRIER = 0.02; // a lower one between two valleys is no second valley

  /**
   * The minimiser of f(s) + (s - t)^2 / (2 rho), refined between the points; and further valleys.
   * @param {number[]} s
   * @param {number[]} f
   * @param {number} t
   * @param {number} rho
   * @returns {Solved}
   */
  function minimise(s, f, t, rho) {
    const objective = f.map((value, i) => value + (s[i] - t) ** 2 / (2 * rho));
    let best = 0;
    objective.forEach((value, i) => {
      if (value < objective[best]) best = i;
    });
    let at = s[best];
    let low = objective[best];
    if (best > 0 && best < s.length - 1) {
      const [a, b, c] = [objective[best - 1], objective[best], objective[best + 1]];
      const bend = a - 2 * b + c;
      if (bend > 0) {
        at += ((a - c) / (2 * bend)) * (s[1] - s[0]);
        low -= (a - c) ** 2 / (8 * bend);
      }
    }
    return { at, low, others: findValleys(objective, best).map((i) => [s[i], f[i]]) };
  }

  /**
   * Other minima that a barrier separates from the best one.
   * @param {number[]} values
   * @param {number} best
   */
  function findValleys(values, best) {
    const found = [];
    for (let i = 1; i < values.length - 1; i += 1) {
      if (i === best || values[i] > values[i - 1] || values[i] >= values[i + 1]) continue;
      const between = values.slice(Math.min(i, best), Math.max(i, best) + 1);
      if (Math.max(...between) - values[i] > BARRIER) found.push(i);
    }
    return found;
  }

  /**
   * @param {number[]} s
   * @param {number[]} f
   */
  function differences(s, f) {
    return f.map((_, i) => {
      const [a, b] = [Math.max(i - 1, 0), Math.min(i + 1, f.length - 1)];
      return (f[b] - f[a]) / (s[b] - s[a]);
    });
  }

  add("rho", (place, data) => {
    const s = grid(data.rho.start, data.rho.step, data.rho.score.length);
    const corner = grid(-6, 0.03, 401);
    /** @type {Record<string, Shown>} */
    const functions = {
      score: {
        solve: (t, rho) => minimise(s, data.rho.score, t, rho),
        ...{ s, f: data.rho.score, slope: differences(s, data.rho.score), x: [-5, 3], xs: [-4, -2, 0, 2] },
        above: { up: "score", y: [3.5, 13.5], ys: [4, 6, 8, 10, 12] },
        below: { up: "slope", y: [-0.5, 8], ys: [0, 2, 4, 6] },
      },
      corner: {
        solve: (t, rho) => {
          const at = Math.sign(t) * Math.max(Math.abs(t) - rho, 0);
          return { at, low: Math.abs(at) + (at - t) ** 2 / (2 * rho), others: [] };
        },
        ...{ s: corner, f: corner.map(Math.abs), slope: corner.map(Math.sign), x: [-3, 3], xs: [-2, 0, 2] },
        above: { up: "value", y: [-0.6, 3], ys: [0, 1, 2, 3] },
        below: { up: "slope", y: [-1.4, 1.4], ys: [-1, 0, 1] },
      },
    };
    /** @type {{of: string, power: number, t: number}} */
    const state = { of: "score", power: -0.5, t: 0 };
    const plots = html("div", { class: "figure-plots figure-pair" });
    const says = html("p", { class: "figure-says", "aria-live": "polite" });

    function draw() {
      const { s, f, slope, solve, x, xs, above, below } = functions[state.of];
      const axes = { x, xs, across: state.of === "score" ? "distance from the photo" : "t", tall: 240 };
      const rho = 10 ** state.power;
      const { at, low, others } = solve(state.t, rho);
      const ts = grid(x[0], 0.05, Math.round((x[1] - x[0]) / 0.05) + 1);
      const solved = ts.map((t) => solve(t, rho));
      const pull = (state.t - at) / rho;

      const upper = plot({ ...axes, ...above });
      upper.draw(
        curve(upper, s, f, "plain"),
        curve(upper, ts, solved.map((each) => each.low), "ours"),
        curve(upper, s, s.map((each) => low - (each - state.t) ** 2 / (2 * rho)), "aid"),
        line(upper, [state.t, low], [at, low], "arrow"),
        line(upper, [at, low], [at, low + (at - state.t) ** 2 / (-2 * rho)], "arrow"),
        ...others.map(([x, y]) => dot(upper, x, y, "hollow", 4)),
        dot(upper, state.t, low, "ours"),
        dot(upper, at, low - (at - state.t) ** 2 / (2 * rho), "accent"),
      );
      const lower = plot({ ...axes, ...below });
      lower.draw(
        curve(lower, s, slope, "plain"),
        curve(lower, ts, solved.map((each, i) => (ts[i] - each.at) / rho), "ours"),
        dot(lower, state.t, pull, "ours"),
      );
      const own = slope[Math.max(0, Math.min(s.length - 1, Math.round((state.t - s[0]) / (s[1] - s[0]))))];
      const more = others.length ? " There is another valley (hollow dot), into which the minimiser may jump." : "";
      says.textContent =
        `rho = ${name(rho)}, delta = ${name(at - state.t)}: the slope of the envelope is -delta / rho = ` +
        `${name(pull)}, that of the function ${name(own)}.${more}`;
      upper.tell(`The function, its envelope at rho ${name(rho)}, and a parabola that touches it at ${name(at)}`);
      lower.tell(`Slopes of the function and of its envelope; at the chosen point ${name(own)} and ${name(pull)}`);
      plots.replaceChildren(upper.element, lower.element);
    }

    const strip = html("div", { class: "figure-strip" });
    for (const row of data.rho.maps) {
      const small = picture(data, `map for rho ${row.rho}`);
      small.show(row.map, row.rho ? `rho ${row.rho}: ${row.cosine.toFixed(2)}` : "rho 0");
      strip.append(small.element);
    }
    const alike = (1 - data.rho.maps[0].relative_error ** 2).toFixed(2);
    const about = html(
      "p",
      { class: "figure-note" },
      "The photo's map for several rho, and its cosine with the first one. " +
        `Other noise alone would make it about ${alike}.`,
    );
    /** @type {[string, string][]} */
    const choices = [
      ["score", "the network's score"],
      ["corner", "absolute value"],
    ];
    const words = (/** @type {number} */ power) => name(10 ** power);
    place.append(
      choice("function", choices, (value) => {
        state.of = value;
        draw();
      }),
      slider("rho", { min: -2, max: 0.5, step: 0.05, value: state.power }, words, (value) => {
        state.power = value;
        draw();
      }),
      slider("point", { min: -3, max: 3, step: 0.05, value: state.t }, name, (value) => {
        state.t = value;
        draw();
      }),
      plots,
      legend([
        ["plain", "the function"],
        ["ours", "its envelope"],
        ["aid", "parabola that touches it"],
        ["accent", "minimiser"],
      ]),
      says,
      about,
      strip,
    );
    draw();
  });
})();
