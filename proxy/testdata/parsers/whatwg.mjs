// Reads targets, each a line in base64, and writes the path that a server reads
// which routes as most of Node do: in base64, or "-" if there is none.
import { createInterface } from 'node:readline'

for await (const line of createInterface({ input: process.stdin })) {
  const target = Buffer.from(line, 'base64').toString('latin1') // as req.url is
  let path = '-'
  try {
    path = Buffer.from(new URL(target, 'http://host.example').pathname, 'latin1').toString('base64')
  } catch {}
  process.stdout.write(path + '\n')
}
