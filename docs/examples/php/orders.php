<?php
// An orders API that uses only PHP's standard library and knows nothing of idempotency.
//
//   php -S 127.0.0.1:3000 orders.php
//   onlyonce proxy --upstream http://127.0.0.1:3000 --single-tenant

function answer(int $status, mixed $value): never
{
    http_response_code($status);
    header('Content-Type: application/json');
    exit(json_encode($value));
}

$file = fopen(getenv('ORDERS') ?: sys_get_temp_dir() . '/orders.json', 'c+');
flock($file, LOCK_EX);
$orders = json_decode(stream_get_contents($file) ?: '[]', true);

if ($_SERVER['REQUEST_METHOD'] !== 'POST') {
    answer(200, $orders);
}
$item = json_decode(file_get_contents('php://input'), true)['item'] ?? null;
if ($item === null) {
    answer(400, ['error' => 'send {"item": …}']);
}
$orders[] = $order = ['id' => count($orders) + 1, 'item' => $item];
rewind($file);
fwrite($file, json_encode($orders));
answer(201, $order);
