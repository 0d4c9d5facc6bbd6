# Sourced by ./test: gets what the tests need and the machine lacks.
#
# Three ways, in this order: apt-get as root, apt-get through a sudo that asks nothing, and without any rights
# packages unpacked below target/tools. What is there is judged by running it, never by what dpkg believes.
#
# Needs from its caller: say, fail, $scratch (a temp folder), $tools (a folder that may stay).

pg_oldest=15

provide_all() {
    provide_compiler
    provide_component rustfmt
    provide_component clippy
    provide_postgres
    provide_redis
}

# --- C compiler and linker ---------------------------------------------------------------------------------------

compiler_works() {
    local probe=$scratch/probe status=0
    echo 'int main(void) { return 0; }' > "$probe.c"
    cc "$probe.c" -o "$probe" > /dev/null 2>&1 && "$probe" || status=1
    rm -f "$probe" "$probe.c"
    return $status
}

provide_compiler() {
    compiler_works && return
    say "installing gcc: Rust links with it, and the bundled SQLite is compiled by it"
    system_install gcc libc6-dev || true
    hash -r
    compiler_works || fail "no working C compiler (cc)." \
        "Debian packages gcc and libc6-dev could not be installed from here (see above)." \
        "Install them as root: apt-get install gcc libc6-dev"
}

# --- rustup components -------------------------------------------------------------------------------------------

component_works() {
    case $1 in
        rustfmt) cargo fmt --version ;;
        clippy) cargo clippy --version ;;
    esac > /dev/null 2>&1
}

provide_component() {
    component_works "$1" && return
    say "adding the Rust component $1: ./test checks with it"
    if command -v rustup > /dev/null; then
        rustup component add "$1" || true
    fi
    component_works "$1" || fail "cargo has no $1." \
        "Add it with: rustup component add $1 (or the package of your Rust distribution)"
}

# --- Python and schemathesis -------------------------------------------------------------------------------------

provide_python() {
    python3 -c 'import json, sqlite3, urllib.request' > /dev/null 2>&1 && return
    say "installing python3: what is asked of servers is asked with it"
    system_install python3 || true
    hash -r
    python3 -c 'import json, sqlite3, urllib.request' > /dev/null 2>&1
}

# A folder of its own below target/tools for packages of PyPI.
python_environment() {
    if ! python3 -c 'import venv, ensurepip' > /dev/null 2>&1; then
        system_install python3-venv || true
    fi
    rm -rf "${tools:?}/$1"
    mkdir -p "$tools"
    python3 -m venv "$tools/$1" && "$tools/$1/bin/pip" install -q --disable-pip-version-check "${@:2}" || true
}

schemathesis_works() { "$tools/schemathesis/bin/schemathesis" --version > /dev/null 2>&1; }

# It is nice to have: without it one section has nothing to say.
provide_schemathesis() {
    schemathesis_works && return
    say "installing schemathesis: it tries the HTTP API by its description"
    python_environment schemathesis 'schemathesis>=4,<5'
    schemathesis_works
}

openapi_tools_work() {
    "$tools/openapi/bin/python" -c 'import openapi_spec_validator' > /dev/null 2>&1 &&
        "$tools/openapi/bin/openapi-python-client" --version > /dev/null 2>&1 &&
        [ -x "$tools/openapi/node_modules/.bin/openapi-typescript" ]
}

# A validator of OpenAPI, and two generators of clients: the description must be of use to them.
provide_openapi_tools() {
    openapi_tools_work && return
    say "installing openapi-spec-validator, openapi-python-client and openapi-typescript: they read the description of the API"
    provide_node || return 1
    python_environment openapi 'openapi-spec-validator>=0.7,<1' 'openapi-python-client>=0.24,<1'
    (cd "$tools/openapi" && quietly npm install --no-audit --no-fund --no-package-lock openapi-typescript@7 typescript@5) || true
    openapi_tools_work
}

cyclonedx_works() { "$tools/cyclonedx/bin/python" -c 'import cyclonedx.validation.json, jsonschema' > /dev/null 2>&1; }

# The schema of the bill of materials, and what checks JSON by it.
provide_cyclonedx() {
    cyclonedx_works && return
    say "installing cyclonedx-python-lib: the bill of materials is checked by its schema"
    python_environment cyclonedx 'cyclonedx-python-lib[json-validation]>=11,<12'
    cyclonedx_works
}

# --- cargo-deny --------------------------------------------------------------------------------------------------

cargo_deny_find() {
    local program
    for program in "$(command -v cargo-deny || echo /nowhere/cargo-deny)" "$tools/cargo-deny/bin/cargo-deny"; do
        if "$program" --version 2> /dev/null | grep -qE '^cargo-deny (0\.(19|[2-9][0-9])|[1-9])'; then
            cargo_deny=$program
            return
        fi
    done
    return 1
}

# Built from source, since older programs do not know lock files of today. Without optimisation it is built in half the time, and
# checks in two seconds.
provide_cargo_deny() {
    cargo_deny_find && return
    say "building cargo-deny: it checks crates of other people; this takes a few minutes, once"
    CARGO_PROFILE_DEV_DEBUG=0 cargo install cargo-deny --version '^0.20' --locked --debug --quiet \
        --root "$tools/cargo-deny" --target-dir "$scratch/cargo-deny" || true
    rm -rf "$scratch/cargo-deny"
    cargo_deny_find
}

# --- Prometheus and what Grafana publishes -------------------------------------------------------------------------

prometheus_find() {
    local folder
    for folder in "$(dirname "$(command -v prometheus || echo /nowhere/prometheus)")" "$tools/prometheus/usr/bin"; do
        if "$folder/prometheus" --version > /dev/null 2>&1 && "$folder/promtool" --version > /dev/null 2>&1; then
            prometheus=$folder/prometheus promtool=$folder/promtool
            return
        fi
    done
    return 1
}

# Only the programs, out of Debian's package: no service is installed or started. They are nice to have.
provide_prometheus() {
    provide_python || return 1
    prometheus_find && return
    own_apt || return 1
    say "unpacking Prometheus: it checks figures, alerts and the queries of the dashboard"
    rm -rf "$tools/prometheus"
    mkdir -p "$tools/prometheus"
    (cd "$tools/prometheus" && quietly apt-get -qq "${apt[@]}" download prometheus && dpkg -x prometheus_*.deb .) || true
    rm -f "$tools/prometheus"/*.deb
    prometheus_find
}

grafana_models_work() { "$tools/grafana/bin/python" -c 'import grafana_foundation_sdk.models.dashboard' > /dev/null 2>&1; }

# From PyPI, into a folder of their own. The number before the ! is when they were made from Grafana 11.6.
provide_grafana_models() {
    grafana_models_work && return
    say "installing grafana-foundation-sdk: the dashboard is read with its models"
    python_environment grafana 'grafana-foundation-sdk==1769699379!11.6.0'
    grafana_models_work
}

# --- a browser ---------------------------------------------------------------------------------------------------

browser_find() {
    local program
    for program in "${CHROMIUM:-/nowhere}" "$(command -v chromium || echo /nowhere)" "$(command -v google-chrome || echo /nowhere)"; do
        if "$program" --version > /dev/null 2>&1; then
            chromium=$program
            return
        fi
    done
    return 1
}

node_works() {
    local version
    version=$(node --version 2> /dev/null) && npm --version > /dev/null 2>&1 || return 1
    version=${version#v}
    [ "${version%%.*}" -ge 18 ]
}

provide_node() {
    node_works && return
    say "installing nodejs and npm: tools of their registry check what the server serves"
    system_install nodejs npm || true
    hash -r
    node_works
}

# Debian's Chromium and Node.js, and from npm what drives the one from the other. Only the tests of the console need them.
provide_browser() {
    if ! browser_find; then
        say "installing chromium: the console is tested in it"
        system_install chromium || true
        browser_find || fail "no browser to test the console in." "Install it as root: apt-get install chromium"
    fi
    provide_node || fail "no Node.js 18 or later, with npm." "Install it as root: apt-get install nodejs npm"
    mkdir -p "$tools/browser"
    cp browser/package.json browser/*.mjs "$tools/browser"
    [ -d "$tools/browser/node_modules/playwright-core" ] && [ -d "$tools/browser/node_modules/axe-core" ] && return
    say "installing playwright-core and axe-core from npm"
    (cd "$tools/browser" && quietly npm install --no-audit --no-fund --no-package-lock) \
        || fail "npm could not install what drives the browser (see above)."
}

# --- PostgreSQL --------------------------------------------------------------------------------------------------

pg_works() {
    local version
    version=$("$1/postgres" --version 2> /dev/null) && "$1/initdb" --version > /dev/null 2>&1 || return 1
    version=${version#*) }
    version=${version%%[!0-9]*}
    [ "${version:-0}" -ge "$pg_oldest" ]
}

pg_candidates() {
    printf '%s\n' /usr/lib/postgresql/*/bin | sort -rV
    printf '%s\n' /usr/pgsql-*/bin | sort -rV
    printf '%s\n' /usr/local/pgsql/bin /opt/homebrew/opt/postgresql@*/bin /usr/local/opt/postgresql@*/bin
    dirname "$(command -v postgres || echo /nowhere/postgres)"
    echo "$tools/postgres/bin"
}

pg_find() {
    local folder
    while read -r folder; do
        if pg_works "$folder"; then
            export MAINSTAY_PG_BIN=$folder
            return
        fi
    done < <(pg_candidates)
    return 1
}

provide_postgres() {
    if [ -n "${MAINSTAY_PG_BIN:-}" ]; then
        pg_works "$MAINSTAY_PG_BIN" && return
        fail "MAINSTAY_PG_BIN=$MAINSTAY_PG_BIN holds no working postgres and initdb of version $pg_oldest or newer." \
            "Point it at the bin folder of such a server, or unset it."
    fi
    pg_find && return
    say "installing PostgreSQL: the tests start servers of their own, on free ports and in temp folders"
    pg_install_in_system && pg_find && return
    pg_unpack && pg_find && return
    rm -rf "$tools/postgres"
    fail "no PostgreSQL $pg_oldest or newer." \
        "The Debian package postgresql-NN could neither be installed nor unpacked from here (see above)." \
        "Install it as root: apt-get install postgresql" \
        "or set MAINSTAY_PG_BIN to a folder that holds postgres and initdb."
}

# The newest server that the package lists know; arguments are options for apt-cache.
pg_newest() {
    local newest
    newest=$(apt-cache "$@" search --names-only '^postgresql-[0-9]+$' |
        sed -n 's/^postgresql-\([0-9]*\) .*/\1/p' | sort -n | tail -1)
    [ "${newest:-0}" -ge "$pg_oldest" ] && echo "$newest"
}

# No cluster of the system is made or started: its port, data and running service are none of our business.
pg_install_in_system() {
    local version conf=/etc/postgresql-common/createcluster.d/mainstay-test.conf status=0
    apt_ready || return 1
    version=$(pg_newest) || { say "the package lists know no postgresql-NN from $pg_oldest on"; return 1; }
    as_root mkdir -p "${conf%/*}" && echo 'create_main_cluster = false' | as_root tee "$conf" > /dev/null
    # The client package owns part of the same folder; --reinstall brings back files that someone removed.
    system_install_unstarted --reinstall "postgresql-$version" "postgresql-client-$version" || status=1
    as_root rm -f "$conf"
    return $status
}

# Unpacks the server and whatever it needs that is not installed, with package lists of our own.
pg_unpack() {
    local home="$tools/postgres" version
    own_apt || return 1
    say "unpacking PostgreSQL into $home instead"
    version=$(pg_newest "${apt[@]}") || { say "the package lists know no postgresql-NN from $pg_oldest on"; return 1; }
    unpack "$home" "usr/lib/postgresql/$version/bin" "postgresql-$version" "postgresql-client-$version"
}

# --- Redis -------------------------------------------------------------------------------------------------------

redis_oldest=7

redis_works() {
    local version
    version=$("$1" --version 2> /dev/null) || return 1
    version=${version#*v=}
    version=${version%%[!0-9]*}
    [ "${version:-0}" -ge "$redis_oldest" ]
}

redis_find() {
    local program
    for program in "$(command -v redis-server || echo /nowhere)" "$tools/redis/bin/redis-server"; do
        if redis_works "$program"; then
            export MAINSTAY_REDIS_SERVER=$program
            return
        fi
    done
    return 1
}

provide_redis() {
    if [ -n "${MAINSTAY_REDIS_SERVER:-}" ]; then
        redis_works "$MAINSTAY_REDIS_SERVER" && return
        fail "MAINSTAY_REDIS_SERVER=$MAINSTAY_REDIS_SERVER is no working redis-server of version $redis_oldest or newer." \
            "Point it at such a program, or unset it."
    fi
    redis_find && return
    say "installing Redis: the tests start servers of their own, on free ports and in temp folders"
    system_install_unstarted redis-server && hash -r && redis_find && return
    own_apt && unpack "$tools/redis" usr/bin redis-server redis-tools && redis_find && return
    rm -rf "$tools/redis"
    fail "no Redis $redis_oldest or newer." \
        "The Debian package redis-server could neither be installed nor unpacked from here (see above)." \
        "Install it as root: apt-get install redis-server" \
        "or set MAINSTAY_REDIS_SERVER to a redis-server."
}

# --- packages ----------------------------------------------------------------------------------------------------

# Runs a command as root, or fails; never asks for a password.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    else
        sudo -n "$@"
    fi
}

apt_updated=''

# True when packages can be installed; brings the package lists up to date once.
apt_ready() {
    command -v apt-get > /dev/null || { say "no apt-get here"; return 1; }
    as_root true 2> /dev/null || { say "not root, and no sudo that asks nothing"; return 1; }
    [ -n "$apt_updated" ] && return
    quietly as_root apt-get -qq update || return 1
    apt_updated=yes
}

system_install() {
    apt_ready || return 1
    quietly as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "$@"
}

# Installs packages whose services are none of our business: nothing of them is started.
system_install_unstarted() {
    local rc=/usr/sbin/policy-rc.d own_rc='' status=0
    apt_ready || return 1
    if [ ! -e $rc ]; then
        own_rc=yes
        printf '#!/bin/sh\nexit 101\n' | as_root tee $rc > /dev/null && as_root chmod 755 $rc
    fi
    system_install "$@" || status=1
    [ -z "$own_rc" ] || as_root rm -f $rc
    return $status
}

apt=()

# Options for an apt with package lists of our own, brought up to date once.
own_apt() {
    command -v apt-get > /dev/null && command -v dpkg > /dev/null || return 1
    [ ${#apt[@]} -eq 0 ] || return 0
    mkdir -p "$scratch/apt/lists/partial" "$scratch/apt/cache/archives/partial"
    apt=(-o "Dir::State::lists=$scratch/apt/lists" -o "Dir::Cache=$scratch/apt/cache" -o Debug::NoLocking=1)
    [ "$(id -u)" != 0 ] || apt+=(-o APT::Sandbox::User=root)
    quietly apt-get -qq "${apt[@]}" update || { apt=(); return 1; }
}

# Unpacks packages, and whatever they need that is not installed, into a folder: its bin holds the programs that the
# packages have in the folder that is named second.
unpack() {
    local home=$1 root=$1/root programs=$2 libraries program packages
    shift 2
    rm -rf "$home"
    mkdir -p "$root" "$home/bin" "$home/debs"
    mapfile -t packages < <(apt-get "${apt[@]}" install --simulate --reinstall --no-install-recommends "$@" |
        sed -n 's/^Inst \([^ ]*\) .*/\1/p')
    [ "${#packages[@]}" -gt 0 ] || return 1
    say "fetching ${packages[*]}"
    (cd "$home/debs" && quietly apt-get -qq "${apt[@]}" download "${packages[@]}") || return 1
    for program in "$home"/debs/*.deb; do
        dpkg -x "$program" "$root" || return 1
    done
    rm -rf "$home/debs"

    # The libraries are found through wrappers, so that they do not reach cargo, rustc and the tests.
    libraries=$(find "$root" -name '*.so.*' -printf '%h\n' | sort -u | paste -sd:)
    for program in "$root/$programs"/*; do
        printf '#!/bin/sh\nLD_LIBRARY_PATH="%s" exec "%s" "$@"\n' "$libraries" "$program" > "$home/bin/${program##*/}"
        chmod 755 "$home/bin/${program##*/}"
    done
}

# Shows what a command printed only when it failed.
quietly() {
    "$@" > "$scratch/output" 2>&1 || { cat "$scratch/output" >&2; return 1; }
}
