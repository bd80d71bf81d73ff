// Sends payments with idempotency keys, and retries each until there is a response.
//
//   node client.mjs http://127.0.0.1:8080/payments '{"amount": 10}'

import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

// send returns the status and the body of the response, or throws the last attempt's error.
async function send(url, body, key, { attempts = 10, budget = 60_000, timeout = 10_000 } = {}) {
  const end = performance.now() + budget;
  for (let attempt = 1; ; attempt++) {
    let headers = new Headers();
    let result, failure;
    const abort = new AbortController();
    // The timer of AbortSignal.timeout would not keep Node from ending in the middle of an attempt.
    const timer = setTimeout(() => abort.abort(new Error(`no response within ${timeout} ms`)), timeout);
    try {
      const response = await fetch(url, {
        method: "POST",
        headers: { "Idempotency-Key": key, "Content-Type": "application/json" },
        body,
        redirect: "manual", // otherwise, a redirect may make the POST a GET
        signal: abort.signal,
      });
      headers = response.headers;
      result = { status: response.status, body: await response.text() };
      if (!isRetryable(response)) {
        return result;
      }
    } catch (error) {
      failure = error; // a broken connection, a timeout, a truncated response
    } finally {
      clearTimeout(timer);
    }
    const wait = pause(headers, attempt);
    if (attempt === attempts || performance.now() + wait > end) {
      if (failure) {
        throw failure;
      }
      return result;
    }
    await sleep(wait);
  }
}

function isRetryable({ status, headers }) {
  if (headers.get("Idempotency-Replayed") === "true") {
    return false; // every retry would get this response
  }
  return [425, 429, 502, 503, 504].includes(status) || (status === 409 && headers.has("Retry-After"));
}

// pause returns how many milliseconds to wait before the next attempt.
function pause(headers, attempt) {
  const asked = headers.get("Retry-After") ?? "";
  const now = Date.parse(headers.get("Date") ?? "") || Date.now(); // by the server's own clock
  const date = /^[a-z]/i.test(asked) ? Date.parse(asked) : NaN; // Date.parse takes 1.5 for a date, too
  const wait = /^\d+$/.test(asked) ? 1000 * Number(asked) : date - now;
  if (Number.isNaN(wait)) {
    return Math.random() * Math.min(5000, 100 * 2 ** attempt);
  }
  return Math.max(0, wait) * (1 + Math.random() / 10);
}

const [url, ...payments] = process.argv.slice(2);
for (const payment of payments) {
  const key = randomUUID(); // store it with the payment if the payment must survive a crash
  const { status, body } = await send(url, payment, key);
  console.log(status, body);
}
