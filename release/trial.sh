#!/bin/sh
# The manual's first steps with the bkbox on PATH; ends with an error at the first step that fails.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
bkbox --version
bkbox demo
bkbox init --config bookie.toml --disk disk --metadata sqlite:cluster.db --listen "127.0.0.1:$((20000 + $$ % 10000))"
bkbox run --config bookie.toml > ready &
bookie=$!
trap 'kill $bookie 2> /dev/null || true; wait $bookie || true; rm -rf "$folder"' EXIT
until grep -q ready ready; do
    kill -0 $bookie
    sleep 0.1
done
echo "hello, ledger" | bkbox ledger write --metadata sqlite:cluster.db -e 1
test "$(bkbox ledger read 0 --metadata sqlite:cluster.db)" = "hello, ledger"
bkbox status --config bookie.toml --timeout 60 | tee status
grep -q '^kernel  *compiled' status
kill $bookie
wait $bookie
