#!/usr/bin/env bash
# run_all.sh FOLDER: runs every benchmark in the folder, whatever becomes of the
# others. Exits with 1 if any failed, and names them. One that needs a GPU says
# "skipped" where there is none.
set -uo pipefail

if [ $# != 1 ] || ! compgen -G "$1/*" >/dev/null; then
  echo "run_all.sh needs a folder with benchmarks" >&2
  exit 2
fi
failed=()
for benchmark in "$1"/*; do
  name="$(basename "$benchmark")"
  echo "== $name"
  "$benchmark" || failed+=("$name (exit code $?)")
done
[ ${#failed[@]} = 0 ] && exit 0
echo "failed:" >&2
printf '  %s\n' "${failed[@]}" >&2
exit 1
