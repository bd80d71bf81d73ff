// The command that the implementations of the league protect: a payment, which takes a moment, as a
// call to a provider does. It knows nothing of idempotency.

import { setTimeout as sleep } from "node:timers/promises";

// How long a payment takes. The check sends repeats in the meantime.
const duration = 60;

export const invalid = { error: 'send {"amount": 1250, "currency": "EUR", "reference": "TEXT"}' };

let made = 0;
const byReference = new Map();

// pay makes the payment, or the refund, that is described by the body, and returns the response.
export async function pay(operation, body) {
  if (!(body?.amount > 0) || typeof body.currency !== "string" || typeof body.reference !== "string") {
    return { status: 400, headers: {}, body: invalid };
  }
  await sleep(duration);
  made++;
  byReference.set(body.reference, count(body.reference).count + 1);
  const id = `pay-${made}`;
  return {
    status: 201,
    headers: { Location: `/${operation}/${id}`, "Set-Cookie": `session=of-${id}; HttpOnly` },
    body: { id, operation, amount: body.amount, currency: body.currency, reference: body.reference },
  };
}

// all returns how many payments were made, and count how many were made with a reference.
export const all = () => ({ made });
export const count = (reference) => ({ count: byReference.get(reference) ?? 0 });

// The header that names the account of a caller. It stands for the result of authentication.
export const accountHeader = "X-Account";

// announce prints the address of a server for the program of the league.
export function announce({ port }) {
  console.log(`listening on http://127.0.0.1:${port}`);
}
