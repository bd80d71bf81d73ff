// Sends payments with idempotency keys, and retries each until there is a response.
//
//   node client.mts http://127.0.0.1:8080/payments '{"amount": 10}'
//
// Node 22.18 or later runs this file as it is. For an earlier one, compile it:
//
//   tsc --strict --target es2022 --module nodenext --outDir build client.mts && node build/client.mjs …

interface Reply {
  status: number;
  body: string;
}

interface Limits {
  attempts: number;
  budget: number; // milliseconds in which an attempt may begin
  timeout: number; // of an attempt, in milliseconds
}

const defaults: Limits = { attempts: 10, budget: 60_000, timeout: 10_000 };

// send returns the status and the body of the response, or throws the last attempt's error.
async function send(url: string, body: string, key: string, limits: Partial<Limits> = {}): Promise<Reply> {
  const { attempts, budget, timeout } = { ...defaults, ...limits };
  const end = performance.now() + budget;
  for (let attempt = 1; ; attempt++) {
    const { reply, headers, error } = await post(url, body, key, timeout);
    if (reply && !isRetryable(reply.status, headers)) {
      return reply;
    }
    const wait = pause(headers, attempt);
    if (attempt === attempts || performance.now() + wait > end) {
      if (reply) {
        return reply;
      }
      throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, wait));
  }
}

// post sends the request once. The error is a broken connection, a timeout or a truncated response.
async function post(url: string, body: string, key: string, timeout: number): Promise<{ reply?: Reply; headers: Headers; error?: unknown }> {
  let headers = new Headers();
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
    return { reply: { status: response.status, body: await response.text() }, headers };
  } catch (error) {
    return { headers, error };
  } finally {
    clearTimeout(timer);
  }
}

function isRetryable(status: number, headers: Headers): boolean {
  if (headers.get("Idempotency-Replayed") === "true") {
    return false; // every retry would get this response
  }
  return [425, 429, 502, 503, 504].includes(status) || (status === 409 && headers.has("Retry-After"));
}

// pause returns how many milliseconds to wait before the next attempt.
function pause(headers: Headers, attempt: number): number {
  const asked = headers.get("Retry-After") ?? "";
  const now = Date.parse(headers.get("Date") ?? "") || Date.now(); // by the server's own clock
  const date = /^[a-z]/i.test(asked) ? Date.parse(asked) : NaN; // Date.parse takes 1.5 for a date, too
  const wait = /^\d+$/.test(asked) ? 1000 * Number(asked) : date - now;
  if (Number.isNaN(wait)) {
    return Math.random() * Math.min(5000, 100 * 2 ** attempt);
  }
  return Math.max(0, wait) * (1 + Math.random() / 10);
}

declare const process: { argv: string[] }; // as in @types/node

const [url, ...payments] = process.argv.slice(2);
for (const payment of payments) {
  const key = crypto.randomUUID(); // store it with the payment if the payment must survive a crash
  const { status, body } = await send(url, payment, key);
  console.log(status, body);
}

export {};
