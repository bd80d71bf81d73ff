<?php
// Reads targets, each a line in base64, and writes the path that parse_url reads in
// them: in base64, or "-" if there is none.
while (($line = fgets(STDIN)) !== false) {
    $path = parse_url(base64_decode($line), PHP_URL_PATH);
    fwrite(STDOUT, (is_string($path) ? base64_encode($path) : '-') . "\n");
}
