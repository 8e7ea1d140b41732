/**
 * The shapes of what the server sends and takes; no code.
 *
 * @typedef {{name: string, classes: number, labelled: boolean, size: [number, number]}} Model
 * @typedef {{name: string, summary: string, options: string[], sparse: boolean, groups: boolean, signed: boolean,
 *   slow: boolean, attackable: boolean, certifiable: boolean}} Method
 * @typedef {{name: string, gradients: number, default?: boolean}} Quality
 * @typedef {{name: string, summary: string}} Statistic
 * @typedef {{name: string, options: {rho?: number, noise_level?: number, statistic?: string}}} Preset
 * @typedef {{id: string, name: string, width: number, height: number}} Example
 * @typedef {{bytes: number, pixels: number, waiting: number}} Limits
 * @typedef {{version: string, read_only: boolean, models: Model[], methods: Method[], qualities: Quality[],
 *   statistics: Statistic[], presets: Preset[], examples: Example[], limits: Limits, docs: string | null}} About
 *
 * @typedef {{id: string, width: number, height: number}} UploadedPhoto
 * @typedef {number | "superpixels" | "channels"} Groups
 * @typedef {{preset?: string, quality?: string, sparsity?: number, noise_level?: number, statistic?: string,
 *   rho?: number, groups?: Groups, seed?: number}} JobOptions
 * @typedef {{kind: "explain", photo: string, model: string, method: string, target: number | null,
 *   options: JobOptions}} ExplainRequest
 * @typedef {{kind: "attack", photo: string, model: string, method: string, target: number | null,
 *   options: JobOptions, attack: {epsilon: number, steps: number}}} AttackRequest
 * @typedef {{kind: "certify", photo: string, model: string, target: number | null,
 *   certify: {sigma: number, samples: number, sparsity: number}}} CertifyRequest
 * @typedef {ExplainRequest | AttackRequest | CertifyRequest} JobRequest
 *
 * @typedef {{target: number, label: string | null, probability: number | null}} TopClass
 * @typedef {{step: number, total: number, seconds: number}} Progress
 * @typedef {{height: number, width: number, values: string}} Preview
 *
 * @typedef {{target: number | null, label: string | null, channels: number, height: number, width: number,
 *   seconds: number}} ResultHead a network with one output has no target
 * @typedef {ResultHead & {kind: "explain", method: string, score: number | null,
 *   gradients: number | null, kept: number, relative_error: number | null, known: string | null,
 *   converged: boolean | null, seed: number | null, never_negative: boolean, solved_share: number | null,
 *   command: string, python: string, files: {map: string, npz: string, picture: string, json: string}}} ExplainResult
 * @typedef {{name: string, title: string, attacked: number | null, two_seeds: number | null,
 *   higher_is_more_robust: boolean}} Metric
 * @typedef {ResultHead & {kind: "attack", method: string, gradients: number | null, epsilon: number,
 *   norm: string, change_8bit: number | null, largest_change_8bit: number | null, same_class: boolean,
 *   metrics: Metric[], sentence: string, files: {before: string, after: string, photo: string, json: string}}} AttackResult
 * @typedef {ResultHead & {kind: "certify", sigma: number, samples: number, alpha: number, epsilons: number[],
 *   active: number, stays: number[], overlap: number[], sentence: string,
 *   files: {map: string, radius: string, json: string}}} CertifyResult
 * @typedef {ExplainResult | AttackResult | CertifyResult} JobResult
 * @typedef {{state: "waiting" | "running" | "done" | "failed" | "stopped", result: JobResult | null,
 *   error?: string | null}} JobReport
 */

export {};
