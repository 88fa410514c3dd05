#!/usr/bin/env bash
# Plants a slow commit in the middle of real Postgres history and lets dbisect find it.
# usage: planted-in-real-history.sh MIRROR GOOD BAD WORKDIR
#   MIRROR  a git repository with Postgres' history; GOOD, BAD  commits, GOOD an ancestor of BAD
# The commits of GOOD..BAD along first parents are replayed as they are up to the middle; then one
# commit adds CPU work to the execution of prepared statements; the rest follows, each with its own
# tree plus that change.
set -euo pipefail
configs=$(cd "$(dirname "$0")/../../matrices/configs" && pwd)
mirror=$1 good=$2 bad=$3 work=$4
mkdir -p "$work"
git clone --quiet --shared --no-checkout "$mirror" "$work/repository"
cd "$work/repository"
git config user.name Experiment; git config user.email experiment@example.org
mapfile -t commits < <(git rev-list --first-parent --reverse "$good..$bad")
middle=$(( ${#commits[@]} * 3 / 5 ))
git checkout --quiet --detach "${commits[middle - 1]}"
file=src/backend/tcop/postgres.c
perl -0pi -e 's/(exec_execute_message\(const char \*portal_name, long max_rows\)\n\{.*?)(\tdest = whereToSendOutput;)/$1\t{\n\t\tvolatile int\twork;\n\n\t\tfor (work = 0; work < 8000; work++)\n\t\t\t;\n\t}\n$2/s' "$file"
git diff --quiet && { echo "the change did not apply" >&2; exit 1; }
git commit --quiet --all --message "Check portals more thoroughly"
culprit=$(git rev-parse HEAD)
git cherry-pick --allow-empty --keep-redundant-commits "${commits[middle - 1]}..${commits[-1]}" >/dev/null
git branch --force planted HEAD
echo "range: ${#commits[@]} real commits and one planted: $culprit"
mkdir -p "$work/configs"
cp "$configs/conf.diff.cx9a2a_small" "$work/configs/"
cat > "$work/planted.toml" <<T
name = "planted-in-real-history"
[[target]]
dbms = "postgres"
revisions = ["planted"]
source = { kind = "git", remote = "$work/repository" }
[run]
rows = 20000
[workload]
steps = ["point-query"]
warmup = 1
time = 3
T
echo "dbisect bisect $work/planted.toml --good $good --bad planted --metric cpupq --step point-query --floor 10"
