/** Requests to the server, and nothing about the page. Every failure is an Error whose message is a sentence. */

/** @import { About, JobReport, JobRequest, UploadedPhoto } from "./types.js" */

/** An answer of the server that is no success, with its sentence. */
export class ServerError extends Error {
  /**
   * @param {string} sentence
   * @param {number} status 0 where the server gave no answer at all
   * @param {number} retryAfter seconds to wait before another try
   */
  constructor(sentence, status, retryAfter = 0) {
    super(sentence);
    this.name = "ServerError";
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

const SILENT = "The server does not answer. Check that it still runs, then try again.";

/**
 * @param {string} path
 * @param {RequestInit} [details]
 * @returns {Promise<Response>}
 */
async function request(path, details) {
  let answer;
  try {
    answer = await fetch(path, { credentials: "same-origin", ...details });
  } catch (problem) {
    if (details?.signal?.aborted) throw problem;
    throw new ServerError(SILENT, 0);
  }
  if (answer.ok) return answer;
  throw new ServerError(await readSentence(answer), answer.status, readRetry(answer));
}

/** @param {Response} answer */
async function readSentence(answer) {
  try {
    const told = /** @type {{error?: unknown}} */ (await answer.json());
    if (typeof told.error === "string" && told.error) return told.error;
  } catch {
    // a proxy in between answers with a page of its own
  }
  if (answer.status === 401)
    return "This page may not use the server. Open it with the address that the server printed.";
  return `The server refused the request (status ${answer.status}).`;
}

/** @param {Response} answer */
function readRetry(answer) {
  const seconds = Number(answer.headers.get("Retry-After"));
  return Number.isFinite(seconds) && seconds > 0 ? Math.min(seconds, 120) : 2;
}

/** @returns {Promise<About>} */
export async function fetchAbout() {
  return /** @type {About} */ (await (await request("/api/about")).json());
}

/**
 * The names of all classes by number; null for those without one.
 *
 * @param {string} model
 * @returns {Promise<(string | null)[] | null>}
 */
export async function fetchClasses(model) {
  const answer = await request(`/api/models/${encodeURIComponent(model)}/classes`);
  return /** @type {{classes: (string | null)[] | null}} */ (await answer.json()).classes;
}

/**
 * @param {Blob} file
 * @returns {Promise<UploadedPhoto>}
 */
export async function uploadPhoto(file) {
  const headers = { "Content-Type": "application/octet-stream" };
  const answer = await request("/api/photos", { method: "POST", headers, body: file });
  return /** @type {UploadedPhoto} */ (await answer.json());
}

/**
 * @param {string} photo
 * @param {string} model
 */
export const addressOfCrop = (photo, model) =>
  `/api/photos/${encodeURIComponent(photo)}/crop?model=${encodeURIComponent(model)}`;

/** @param {string} photo */
export const addressOfThumbnail = (photo) => `/api/photos/${encodeURIComponent(photo)}/thumbnail`;

/**
 * @param {string} address
 * @returns {Promise<ImageBitmap>}
 */
export async function fetchPicture(address) {
  return createImageBitmap(await (await request(address)).blob());
}

/**
 * @param {string} address
 * @returns {Promise<ArrayBuffer>}
 */
export async function fetchBytes(address) {
  return (await request(address)).arrayBuffer();
}

/**
 * @param {JobRequest} job
 * @returns {Promise<string>} its id
 */
export async function postJob(job) {
  const headers = { "Content-Type": "application/json" };
  const answer = await request("/api/jobs", { method: "POST", headers, body: JSON.stringify(job) });
  return /** @type {{id: string}} */ (await answer.json()).id;
}

/**
 * @param {string} id
 * @returns {Promise<JobReport>}
 */
export async function fetchJob(id) {
  return /** @type {JobReport} */ (await (await request(addressOfJob(id))).json());
}

/**
 * Stops a job. A job that is over already, or a server that is gone, is as good as stopped.
 *
 * @param {string} id
 */
export async function deleteJob(id) {
  try {
    await fetch(addressOfJob(id), { method: "DELETE", keepalive: true, signal: AbortSignal.timeout(5000) });
  } catch {
    // nothing is left to stop
  }
}

/**
 * The events of a job, by name, with their data read as JSON.
 *
 * @param {string} id
 * @param {AbortSignal} signal
 * @returns {AsyncGenerator<{name: string, data: unknown}, void, void>}
 */
export async function* followJob(id, signal) {
  const headers = { Accept: "text/event-stream" };
  const answer = await request(`${addressOfJob(id)}/events`, { headers, signal, cache: "no-store" });
  if (!answer.body) return;
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      text = (text + value).replaceAll("\r\n", "\n");
      const blocks = text.split("\n\n");
      text = blocks.pop() ?? "";
      for (const block of blocks) {
        const event = readEvent(block);
        if (event) yield event;
      }
    }
  } finally {
    reader.cancel().catch(() => {}); // closed streams refuse, and that is fine
  }
}

/** @param {string} block the lines of one event */
function readEvent(block) {
  let name = "message";
  const data = [];
  for (const line of block.split("\n")) {
    const [, field, value] = /^([^:]*):? ?(.*)$/.exec(line) ?? [];
    if (field === "event") name = value ?? name;
    if (field === "data") data.push(value ?? "");
  }
  if (data.length === 0) return null; // a comment that keeps the connection open
  return { name, data: /** @type {unknown} */ (JSON.parse(data.join("\n"))) };
}

/** @param {string} id */
const addressOfJob = (id) => `/api/jobs/${encodeURIComponent(id)}`;
