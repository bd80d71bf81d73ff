#!/bin/sh
# Sends payments with idempotency keys, and retries each until there is a response.
#
#   sh client.sh http://127.0.0.1:8080/payments '{"amount": 10}'
set -eu

# send URL BODY KEY prints the status and the body of the response. It returns curl's code if
# there is no response.
send() {
	response=$(mktemp)
	end=$(($(date +%s) + 60))
	while true; do
		code=0
		outcome=$(curl --silent --show-error --output "$response" \
			--write-out '%{http_code} %header{retry-after}' \
			--retry 5 --retry-all-errors --max-time 10 --retry-max-time 60 \
			--header "Idempotency-Key: $3" --header 'Content-Type: application/json' \
			--data-raw "$2" "$1") || code=$?
		case $outcome in
		'409 '[0-9] | '409 '[0-9][0-9]) wait=${outcome#409 } ;; # the first request is still running
		*) break ;;
		esac
		[ $(($(date +%s) + wait)) -lt "$end" ] || break
		sleep "$wait"
	done
	if [ "$code" = 0 ]; then
		printf '%s %s\n' "${outcome%% *}" "$(cat "$response")"
	fi
	rm -f "$response"
	return "$code"
}

url=$1
shift
for payment; do
	key=$(openssl rand -hex 16) # store it with the payment if the payment must survive a crash
	send "$url" "$payment" "$key"
done
