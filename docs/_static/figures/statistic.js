// Statistics: one entry of the gradient over many noisy copies, what four statistics make of it, and their maps.
"use strict";

(() => {
  const { add, choice, dot, html, line, name, percent, picture, plot, slider } = figureTools;
  const LABELS = { mean: "mean", rms: "rms", votes: "votes", geometric: "geometric" };
  /** @type {Record<string, string>} */
  const KINDS = { steady: "steady", changing: "changes sign", rare: "rare peaks", weak: "weak" };

  /**
   * The four statistics of some gradients' entries.
   * @param {number[]} samples
   * @param {number[]} bounds from which size on an entry gets a vote
   */
  function measure(samples, bounds) {
    const count = samples.length;
    const mean = samples.reduce((sum, each) => sum + each, 0) / count;
    const rms = Math.sqrt(samples.reduce((sum, each) => sum + each * each, 0) / count);
    const votes = samples.filter((each, i) => Math.abs(each) >= bounds[i]).length / count;
    return { mean, rms, votes, geometric: Math.sqrt(Math.abs(mean) * rms) };
  }

  add("statistic", (place, data) => {
    const { entries, bounds, maps } = data.statistic;
    const most = bounds.length;
    const edge = 0.15;
    const on = plot({
      x: [0, most + 1],
      y: [-edge, edge],
      xs: [1, most / 4, most / 2, (3 * most) / 4, most],
      ys: [-0.1, 0, 0.1],
      across: "noisy copy",
      up: "entry of the gradient",
      tall: 250,
    });
    const small = picture(data, "map of this statistic");
    const cells = html("tr", {});
    const says = html("p", { class: "figure-says", "aria-live": "polite" });
    /** @type {{of: "mean" | "rms" | "votes" | "geometric", entry: string, count: number}} */
    const state = { of: "mean", entry: entries[0].kind, count: most };

    function draw() {
      const { samples } = entries.find((each) => each.kind === state.entry) ?? entries[0];
      const [some, limits] = [samples.slice(0, state.count), bounds.slice(0, state.count)];
      const found = measure(some, limits);
      const voted = state.of === "votes";
      const level = limits.reduce((sum, each) => sum + each, 0) / limits.length;
      const heights = voted ? [level, -level] : [found[state.of]];
      on.draw(
        line(on, [0, 0], [most + 1, 0], "plain"),
        ...some.map((each, i) => {
          const high = Math.max(-edge, Math.min(edge, each)); // what is beyond the plot lies on its edge
          return dot(on, i + 1, high, voted && Math.abs(each) >= limits[i] ? "accent" : "sample", 2.4);
        }),
        ...heights.map((height) => line(on, [0, height], [most + 1, height], voted ? "aid" : "ours")),
      );
      on.tell(`The entry in ${state.count} noisy copies, and its ${state.of}`);
      const shown = /** @type {const} */ ([
        ["mean", name(found.mean)],
        ["rms", name(found.rms)],
        ["votes", percent(found.votes)],
        ["geometric", name(found.geometric)],
      ]);
      cells.replaceChildren(
        ...shown.map(([key, text]) => html("td", key === state.of ? { class: "figure-chosen" } : {}, text)),
      );
      says.textContent = voted
        ? `The entry is among the largest ${percent(data.statistic.tau)} in ${percent(found.votes)} of ` +
          `${state.count} copies (coloured dots).`
        : `${LABELS[state.of]} of ${state.count} copies: ${name(found[state.of])}.`;
      small.show(maps[state.of], `map: ${LABELS[state.of]}`);
    }

    const heads = Object.values(LABELS).map((label) => html("th", { scope: "col" }, label));
    place.append(
      choice("statistic", Object.entries(LABELS), (value) => {
        state.of = /** @type {typeof state.of} */ (value);
        draw();
      }),
      choice("entry", entries.map((each) => [each.kind, KINDS[each.kind]]), (value) => {
        state.entry = value;
        draw();
      }),
      slider("noisy copies", { min: 2, max: most, step: 2, value: most }, String, (value) => {
        state.count = value;
        draw();
      }),
      html(
        "div",
        { class: "figure-beside" },
        html("div", { class: "figure-plots" }, on.element, html("table", {}, html("tr", {}, ...heads), cells)),
        html("div", { class: "figure-maps" }, small.element),
      ),
      says,
    );
    draw();
  });
})();
