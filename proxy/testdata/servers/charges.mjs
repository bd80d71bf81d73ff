// A payment server as many are: it routes by the path that URL reads, and lets
// headers say another method or path.
import { createServer } from 'node:http'

createServer((req, res) => {
  const target = req.headers['x-original-url'] ?? req.headers['x-rewrite-url'] ?? req.url
  const method = req.headers['x-http-method-override'] ?? req.method
  let path = target
  try {
    path = new URL(target, `http://${req.headers.host}`).pathname
  } catch {}
  req.resume().on('end', () => {
    res.end(method === 'POST' && path.toLowerCase() === '/payments' ? 'charged' : 'nothing')
  })
}).listen(Number(process.argv[2]), '127.0.0.1')
