<?php
// A payment server as many are: it routes by the path that parse_url reads, or by
// PATH_INFO, and lets headers say another method or path.
$target = $_SERVER['HTTP_X_ORIGINAL_URL'] ?? $_SERVER['HTTP_X_REWRITE_URL'] ?? $_SERVER['REQUEST_URI'];
$method = $_SERVER['HTTP_X_HTTP_METHOD_OVERRIDE'] ?? $_SERVER['REQUEST_METHOD'];
$paths = [parse_url($target, PHP_URL_PATH), rawurldecode((string) parse_url($target, PHP_URL_PATH)), $_SERVER['PATH_INFO'] ?? ''];
echo $method === 'POST' && in_array('/payments', $paths, true) ? 'charged' : 'nothing';
