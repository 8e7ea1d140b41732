// What the interactive figures share: plots in SVG, maps on a canvas, sliders. Classic scripts, so that a page opened
// from disk works; every figure adds itself by `figureTools.add`, and the data comes from data.js.
"use strict";

/**
 * @typedef {{noise_level: number, score: number[], slope: number[], map: string, relative_error: number}} NoiseRow
 * @typedef {{rho: number, map: string, cosine: number, relative_error: number}} RhoRow
 * @typedef {{eta: number, map: string, kept: number, pixels: number}} EtaRow
 * @typedef {{kind: string, samples: number[]}} Entry
 * @typedef {object} Data
 * @property {{label: string, picture: string}} photo
 * @property {number} budget
 * @property {number} side
 * @property {string} characters
 * @property {string[]} palette
 * @property {{reach: number, copies: number, levels: NoiseRow[]}} sigma
 * @property {{start: number, step: number, score: number[], maps: RhoRow[]}} rho
 * @property {{path: EtaRow[], edge: number, counts: number[]}} eta
 * @property {{tau: number, bounds: number[], entries: Entry[], maps: Record<string, string>}} statistic
 *
 * @typedef {[number, number]} Interval
 * @typedef {{x: Interval, y: Interval, xs: number[], ys: number[], across: string, up: string, tall?: number}} Axes
 * @typedef {(x: number) => number} Scale
 * @typedef {object} Plot
 * @property {SVGElement} element
 * @property {Scale} x
 * @property {Scale} y
 * @property {(...shapes: Node[]) => void} draw
 * @property {(text: string) => void} tell
 * @typedef {(place: HTMLElement, data: Data) => void} Build
 */

const figureTools = (() => {
  const NAMESPACE = "http://www.w3.org/2000/svg";
  const WIDTH = 360;
  const EDGE = { left: 44, right: 16, top: 20, bottom: 36 };
  /** @type {Map<string, Build>} */
  const figures = new Map();
  let count = 0;

  /**
   * An element of a drawing.
   * @param {string} name
   * @param {Record<string, string | number>} attributes
   * @param {...(Node | string)} children
   * @returns {SVGElement}
   */
  function svg(name, attributes = {}, ...children) {
    const made = /** @type {SVGElement} */ (document.createElementNS(NAMESPACE, name));
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
    made.append(...children);
    return made;
  }

  /**
   * An element of the page.
   * @param {string} name
   * @param {Record<string, string | number>} attributes
   * @param {...(Node | string)} children
   * @returns {HTMLElement}
   */
  function html(name, attributes = {}, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
    made.append(...children);
    return made;
  }

  /**
   * An empty plot with axes. `draw` replaces what is in it, `tell` what a screen reader says about it.
   * @param {Axes} axes
   * @returns {Plot}
   */
  function plot(axes) {
    const height = axes.tall ?? 190;
    /** @type {Scale} */
    const x = (value) => EDGE.left + ((value - axes.x[0]) / (axes.x[1] - axes.x[0])) * (WIDTH - EDGE.left - EDGE.right);
    /** @type {Scale} */
    const y = (value) =>
      height - EDGE.bottom - ((value - axes.y[0]) / (axes.y[1] - axes.y[0])) * (height - EDGE.top - EDGE.bottom);
    const frame = svg("g", { class: "figure-axes" });
    for (const value of axes.xs) {
      frame.append(svg("line", { x1: x(value), x2: x(value), y1: EDGE.top, y2: height - EDGE.bottom }));
      frame.append(svg("text", { x: x(value), y: height - EDGE.bottom + 14, "text-anchor": "middle" }, name(value)));
    }
    for (const value of axes.ys) {
      frame.append(svg("line", { x1: EDGE.left, x2: WIDTH - EDGE.right, y1: y(value), y2: y(value) }));
      frame.append(svg("text", { x: EDGE.left - 6, y: y(value) + 4, "text-anchor": "end" }, name(value)));
    }
    frame.append(svg("text", { x: EDGE.left - 38, y: 12, class: "figure-title" }, axes.up));
    frame.append(
      svg("text", { x: WIDTH - EDGE.right, y: height - 6, "text-anchor": "end", class: "figure-title" }, axes.across),
    );
    const clip = `figure-clip-${(count += 1)}`;
    const inside = { x: EDGE.left, y: EDGE.top, width: WIDTH - EDGE.left - EDGE.right };
    const hole = svg("rect", { ...inside, height: height - EDGE.top - EDGE.bottom });
    const marks = svg("g", { "clip-path": `url(#${clip})` });
    const element = svg(
      "svg",
      { viewBox: `0 0 ${WIDTH} ${height}`, role: "img", class: "figure-plot" },
      svg("clipPath", { id: clip }, hole),
      frame,
      marks,
    );
    return {
      element,
      x,
      y,
      draw: (...shapes) => marks.replaceChildren(...shapes),
      tell: (text) => element.setAttribute("aria-label", text),
    };
  }

  /**
   * A curve through points, in the units of a plot.
   * @param {Plot} on
   * @param {number[]} xs
   * @param {number[]} ys
   * @param {string} look
   */
  function curve(on, xs, ys, look) {
    const points = xs.map((x, i) => `${on.x(x).toFixed(1)},${on.y(ys[i]).toFixed(1)}`);
    return svg("polyline", { points: points.join(" "), class: `figure-curve ${look}` });
  }

  /**
   * @param {Plot} on
   * @param {number} x
   * @param {number} y
   * @param {string} look
   * @param {number} radius
   */
  function dot(on, x, y, look, radius = 5) {
    return svg("circle", { cx: on.x(x), cy: on.y(y), r: radius, class: `figure-dot ${look}` });
  }

  /**
   * @param {Plot} on
   * @param {Interval} from
   * @param {Interval} to
   * @param {string} look
   */
  function line(on, from, to, look) {
    const [x1, y1, x2, y2] = [on.x(from[0]), on.y(from[1]), on.x(to[0]), on.y(to[1])];
    return svg("line", { x1, y1, x2, y2, class: `figure-curve ${look}` });
  }

  /**
   * What the colours of a plot mean.
   * @param {[string, string][]} entries look and words
   */
  function legend(entries) {
    return html(
      "p",
      { class: "figure-legend" },
      ...entries.map(([look, words]) => html("span", {}, html("i", { class: look, "aria-hidden": "true" }), words)),
    );
  }

  /**
   * A slider with its name and value.
   * @param {string} label
   * @param {{min: number, max: number, step: number, value: number}} range
   * @param {(value: number) => string} say the value in words
   * @param {(value: number) => void} change
   */
  function slider(label, range, say, change) {
    const input = /** @type {HTMLInputElement} */ (html("input", { type: "range", ...range }));
    const shown = html("output", {});
    const show = () => {
      const words = say(input.valueAsNumber);
      shown.textContent = words;
      input.setAttribute("aria-valuetext", words);
    };
    input.addEventListener("input", () => {
      show();
      change(input.valueAsNumber);
    });
    show();
    return html("label", { class: "figure-slider" }, html("span", {}, `${label} `, shown), input);
  }

  /**
   * One of several words.
   * @param {string} label
   * @param {[string, string][]} options value and words; the first is chosen
   * @param {(value: string) => void} change
   */
  function choice(label, options, change) {
    const group = `figure-choice-${(count += 1)}`;
    const made = options.map(([value, words], place) => {
      const input = html("input", { type: "radio", name: group, value, ...(place ? {} : { checked: "" }) });
      input.addEventListener("change", () => change(value));
      return html("label", {}, input, words);
    });
    return html("fieldset", { class: "figure-choice" }, html("legend", {}, label), ...made);
  }

  /**
   * A small map with a caption; `show` draws another one.
   * @param {Data} data
   * @param {string} words what a screen reader says
   */
  function picture(data, words) {
    const canvas = /** @type {HTMLCanvasElement} */ (
      html("canvas", { width: data.side, height: data.side, role: "img", "aria-label": words })
    );
    const caption = html("figcaption", {});
    const colours = data.palette.map((each) => [1, 3, 5].map((at) => parseInt(each.slice(at, at + 2), 16)));
    /** @type {(map: string, text: string) => void} */
    const show = (map, text) => {
      const context = canvas.getContext("2d");
      if (context === null) return;
      const pixels = context.createImageData(data.side, data.side);
      for (let i = 0; i < map.length; i += 1) {
        const level = data.characters.indexOf(map[i]) / (data.characters.length - 1);
        pixels.data.set([...colours[Math.round(level * level * (colours.length - 1))], 255], 4 * i);
      }
      context.putImageData(pixels, 0, 0);
      caption.textContent = text;
    };
    return { element: html("figure", {}, canvas, caption), show };
  }

  /** @param {Data} data */
  function photo(data) {
    const image = html("img", { src: data.photo.picture, alt: `a cat: ${data.photo.label}` });
    return html("figure", {}, image, html("figcaption", {}, `the photo (${data.photo.label})`));
  }

  /**
   * A number as short as it can be read.
   * @param {number} value
   */
  function name(value) {
    return Number(value.toPrecision(3)).toString().replace("-", "\u2212");
  }

  /** @param {number} share */
  function percent(share) {
    return `${Number((100 * share).toPrecision(share < 0.01 ? 1 : 2))} %`;
  }

  /**
   * Numbers from `from` on.
   * @param {number} from
   * @param {number} step
   * @param {number} length
   */
  function grid(from, step, length) {
    return Array.from({ length }, (_, i) => from + i * step);
  }

  document.addEventListener("DOMContentLoaded", () => {
    const data = /** @type {{moreaugradFigures?: Data}} */ (/** @type {unknown} */ (window)).moreaugradFigures;
    if (data === undefined) return; // the pictures stay
    for (const place of document.querySelectorAll("[data-figure]")) {
      const build = figures.get(place.getAttribute("data-figure") ?? "");
      if (build === undefined || !(place instanceof HTMLElement)) continue;
      place.replaceChildren();
      place.classList.add("figure-live");
      build(place, data);
    }
  });

  /** @type {(name: string, build: Build) => void} */
  const add = (name, build) => figures.set(name, build);
  return { add, choice, curve, dot, grid, html, legend, line, name, percent, photo, picture, plot, slider, svg };
})();
