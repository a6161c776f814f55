# Shoal's one entry point. `make` lists what there is; each target first installs what it needs (scripts/setup).

MOUNT ?= run/mnt
DATA ?= run/data

PREFIX ?= /usr/local
BINDIR ?= $(PREFIX)/bin
# mount(8) and umount(8) look for their helpers here and nowhere else.
SBINDIR ?= /sbin
UNITDIR ?= $(PREFIX)/lib/systemd/system
SHAREDIR ?= $(PREFIX)/share

# Outside the work tree, so that a fresh clone reuses what is built: RocksDB alone takes minutes.
export CARGO_TARGET_DIR ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/shoal/target
export SHOAL_TOOLS ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/shoal/tools

# One profile for everything, and always the whole workspace: other choices would build RocksDB again.
CARGO_BUILD = scripts/cargo build --release --workspace --bins
SHOAL = $(CARGO_TARGET_DIR)/release/shoal

.PHONY: help
help: ## This list
	@echo "Shoal: a clustered POSIX file system. Targets:"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "    make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "Where: MOUNT=$(MOUNT) DATA=$(DATA) (say 'make up MOUNT=/mnt/shoal DATA=/srv/shoal' for other places)"

.PHONY: build
build: ## Build the release binaries
	@scripts/setup build
	$(CARGO_BUILD)

.PHONY: up
up: build ## Build, start in the background, return once mounted; run/shoal is the program
	@mkdir -p run && ln -sfn "$(SHOAL)" run/shoal
	@run/shoal up --data "$(DATA)" --mount "$(MOUNT)" --background </dev/null

.PHONY: down
down: ## Unmount cleanly and stop
	@if grep -qs " $(abspath $(MOUNT)) fuse" /proc/mounts; then \
		"$(SHOAL)" umount "$(MOUNT)" && echo "Shoal is down; its data stay in $(DATA)."; \
	else \
		echo "Shoal is not mounted on $(MOUNT)."; \
	fi

.PHONY: install
install: build ## Install program, mount helpers, units, manual, completions (PREFIX=/usr/local, DESTDIR for packagers)
	install -D -s -m 755 "$(SHOAL)" "$(DESTDIR)$(BINDIR)/shoal"
	mkdir -p "$(DESTDIR)$(SBINDIR)" "$(DESTDIR)$(UNITDIR)"
	ln -sf "$(BINDIR)/shoal" "$(DESTDIR)$(SBINDIR)/mount.shoal"
	ln -sf "$(BINDIR)/shoal" "$(DESTDIR)$(SBINDIR)/mount.fuse.shoal"
	ln -sf "$(BINDIR)/shoal" "$(DESTDIR)$(SBINDIR)/umount.fuse.shoal"
	for unit in dist/*.service; do \
		sed 's|@BINDIR@|$(BINDIR)|g' "$$unit" >"$(DESTDIR)$(UNITDIR)/$${unit##*/}" || exit 1; \
	done
	install -D -m 644 dist/prometheus/alerts.yml "$(DESTDIR)$(SHAREDIR)/shoal/prometheus/alerts.yml"
	install -D -m 644 dist/grafana/shoal.json "$(DESTDIR)$(SHAREDIR)/shoal/grafana/shoal.json"
	install -D -m 644 dist/samba/smb.conf "$(DESTDIR)$(SHAREDIR)/shoal/samba/smb.conf"
	install -D -m 644 dist/ganesha/ganesha.conf "$(DESTDIR)$(SHAREDIR)/shoal/ganesha/ganesha.conf"
	install -D -m 644 dist/versitygw/shoal.conf "$(DESTDIR)$(SHAREDIR)/shoal/versitygw/shoal.conf"
	mkdir -p "$(DESTDIR)$(SHAREDIR)/shoal/kubernetes"
	install -m 644 dist/kubernetes/*.yaml "$(DESTDIR)$(SHAREDIR)/shoal/kubernetes"
	"$(SHOAL)" manual "$(DESTDIR)$(SHAREDIR)"

.PHONY: uninstall
uninstall: ## Remove what install put there; data and credentials stay
	rm -f "$(DESTDIR)$(BINDIR)/shoal" "$(DESTDIR)$(SBINDIR)/mount.shoal" "$(DESTDIR)$(SBINDIR)/mount.fuse.shoal" \
		"$(DESTDIR)$(SBINDIR)/umount.fuse.shoal" \
		$(patsubst dist/%,"$(DESTDIR)$(UNITDIR)/%",$(wildcard dist/*.service))
	rm -rf "$(DESTDIR)$(SHAREDIR)/shoal"
	rm -f "$(DESTDIR)$(SHAREDIR)/man/man1/shoal.1" "$(DESTDIR)$(SHAREDIR)"/man/man1/shoal-*.1 \
		"$(DESTDIR)$(SHAREDIR)/bash-completion/completions/shoal" \
		"$(DESTDIR)$(SHAREDIR)/zsh/site-functions/_shoal" \
		"$(DESTDIR)$(SHAREDIR)/fish/vendor_completions.d/shoal.fish"

.PHONY: deb
deb: build ## Build a Debian package in run/
	@scripts/setup deb
	@scripts/deb run

.PHONY: test-deb
test-deb: build ## Install, upgrade, remove and purge the Debian package in a clean system
	@scripts/setup deb
	@scripts/test-deb

.PHONY: test-gluster
test-gluster: build ## Fill volumes of a real GlusterFS, import their bricks, compare the trees
	@scripts/setup gluster
	@scripts/test-gluster

.PHONY: test-gateways
test-gateways: build ## Samba, NFS-Ganesha, S3 and backups on two mounts of a volume, with the files of dist/
	@scripts/setup gateways
	@scripts/test-gateways

.PHONY: test-upgrade
test-upgrade: build ## Upgrade a cluster under load, node by node, from an older revision (FROM=REV; by default the newest tag)
	@scripts/setup test
	@scripts/test-upgrade $(FROM)

.PHONY: test-web
test-web: build ## The web page in headless Chromium, with pictures to look at in SHOTS=run/shots
	@scripts/setup web
	@scripts/test-web

.PHONY: lunch
lunch: build ## Move in from a real GlusterFS with 20,000 files: import, mounts, Samba, kills, export (SHORT=1: 2,000 files)
	@scripts/setup gluster samba
	@scripts/lunch $(if $(SHORT),short)

.PHONY: peers
peers: build ## Measure Shoal beside GlusterFS, MooseFS and a plain directory, write README.md's table (SHORT=1: a few files, no table)
	@scripts/setup gluster moosefs
	@scripts/peers $(if $(SHORT),short)

.PHONY: overhead
overhead: build ## What it costs to count and to be looked at, on small-read and untar (SHORT=1: a few files)
	@scripts/setup test
	@scripts/overhead $(if $(SHORT),short)

.PHONY: rebuild
rebuild: build ## How fast a lost disk is rebuilt where links of 200 Mbit/s are the limit
	@scripts/setup test
	@scripts/rebuild

.PHONY: exercises
exercises: build ## Three slow workloads and what the tools show of them: docs/EXERCISES.md
	@scripts/setup test
	@scripts/exercises

.PHONY: test-csi
test-csi: build ## csi-sanity and restarts against the CSI driver, on a cluster of one node; the manifests of Kubernetes
	@scripts/setup csi
	@scripts/test-csi

.PHONY: test
test: ## Every test: units, properties, and programs in real mounts
	@scripts/setup build test
	@SHOAL_TRANSPORT=dev scripts/test --workspace --test fuse
	@scripts/test --workspace

.PHONY: test-dev
test-dev: ## All tests of real mounts, with requests from /dev/fuse instead of over io_uring
	@scripts/setup build test
	@SHOAL_TRANSPORT=dev scripts/test --workspace --test fuse --test acceptance --test cluster

.PHONY: test-crash
test-crash: ## The long crash run: killed with -9 at 100 random moments (SEED=n repeats a run)
	@scripts/setup build test
	@SHOAL_TEST_LONG=1 $(if $(SEED),SHOAL_TEST_SEED=$(SEED)) scripts/test --workspace --test acceptance crash -- --nocapture

.PHONY: test-long
test-long: ## Every acceptance test at full length
	@scripts/setup build test
	@SHOAL_TEST_LONG=1 $(if $(SEED),SHOAL_TEST_SEED=$(SEED)) scripts/test --workspace --test acceptance

.PHONY: verify
verify: ## Format, lints, house rules, commit subjects, licences
	@scripts/setup build verify
	cargo fmt --all --check
	scripts/cargo clippy --release --workspace --all-targets -- -D warnings
	cargo test --release --workspace --test house
	@scripts/commits
	@scripts/deny

.PHONY: fix
fix: ## Format, and apply the lints that can mend themselves
	@scripts/setup build verify
	cargo clippy --release --workspace --all-targets --fix --allow-dirty --allow-staged
	cargo fmt --all

# The checker knows nothing of Shoal and builds in a minute, so it is not made to wait for the rest.
.PHONY: check
check: ## Do several mounts behave like one local directory? (DIRS="/mnt/a /mnt/b" [SECONDS=10 WORKERS=2 SEED=n HISTORY=file TOLERATE="estale contended"])
	@scripts/setup build
	@test -n "$(DIRS)" || { echo 'DIRS is not set. Say: make check DIRS="/mnt/a /mnt/b"'; exit 2; }
	cargo build --release --package shoal-witness
	"$(CARGO_TARGET_DIR)/release/shoal-witness" run $(DIRS) $(if $(SECONDS),--seconds $(SECONDS)) \
		$(if $(WORKERS),--workers $(WORKERS)) $(if $(SEED),--seed $(SEED)) $(if $(HISTORY),--history "$(HISTORY)") \
		$(foreach what,$(TOLERATE),--tolerate $(what))

.PHONY: check-planted
check-planted: build ## Does the checker find a defect? (Builds one that now and then does not tell the kernel what has changed)
	@scripts/setup test
	cargo build --release --package shoal --features planted
	cp "$(SHOAL)" "$(SHOAL)-planted"
	$(CARGO_BUILD)
	SHOAL_TEST_PLANTED="$(SHOAL)-planted" scripts/test --package shoal --test acceptance several::checker::a_kernel -- --ignored --nocapture

.PHONY: sim
sim: ## Whole clusters in one process, each from a seed, with faults and checks (SEEDS=100 [SEED=1 first]): docs/SIMULATOR.md
	@scripts/setup build
	$(CARGO_BUILD)
	"$(CARGO_TARGET_DIR)/release/shoal-sim" --seed $(or $(SEED),1) --seeds $(or $(SEEDS),100) --jobs 2 --quiet

.PHONY: bench
bench: build ## Measure against a local directory, write docs/BENCHMARKS.md (BENCH="unpack small" picks some; not in it: several, path, space, coding; store, million, healing, schemes, tier: with FILES=n; tier: with BRICKS=28)
	@scripts/setup bench
	"$(CARGO_TARGET_DIR)/release/shoal-bench" --shoal "$(SHOAL)" $(if $(FILES),--files $(FILES)) $(if $(BRICKS),--bricks $(BRICKS)) $(if $(BENCH),$(BENCH),all --write docs/BENCHMARKS.md)

.PHONY: bench-cluster
bench-cluster: build ## Measure three servers on this machine, write docs/BENCHMARKS-CLUSTER.md (BENCH="unpack" picks some)
	@scripts/setup bench
	"$(CARGO_TARGET_DIR)/release/shoal-bench" --shoal "$(SHOAL)" --nodes 3 $(if $(FILES),--files $(FILES)) $(if $(BENCH),$(BENCH),all --write docs/BENCHMARKS-CLUSTER.md)
