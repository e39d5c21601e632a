VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)
# Trimmed paths share the build cache among clones, and among builds, tests and checks. Without information for debuggers
# a test program links a quarter faster.
export GOFLAGS := $(shell go env GOFLAGS) -trimpath -ldflags=-w
GOBUILD := CGO_ENABLED=0 go build -ldflags '$(LDFLAGS)'
PROGRAMS := skerry skerry-edge skerry-chaos
# How long chaos goes on: virtual time for BUDGET, real processes for FOR.
BUDGET ?= 10m
FOR ?= 30m
# The race detector needs a C compiler; without one the tests run without it.
# Go 1.26: timers of one synctest bubble that run on two processors crash the race detector (golang/go#78156).
# SQLite is one goroutine's, and three times as slow with the detector: only the code around it has it.
RACE := $(shell command -v $$(go env CC) >/dev/null 2>&1 && echo "-race -cpu 1 -gcflags='modernc.org/...=-race=false'")
# A program with the detector waits for a second before it exits, and so does each process of a task in the tests.
export GORACE := atexit_sleep_ms=100
SEED ?= $(shell date +%s)
# What a campaign is asked besides; CHAOS= where it is too short to come everywhere.
CHAOS ?= --coverage

.PHONY: build test-drivers test-real test-writes missing measure measure-record operations test test-long test-shortened test-raced test-whole prometheus properties demo bench benchmarks lint chaos chaos-real scenarios mutations mutants cross conformance fuzz

build: ## the three programs, static, into bin/
	@mkdir -p bin
	@for p in $(PROGRAMS); do echo "build bin/$$p"; $(GOBUILD) -o bin/$$p ./cmd/$$p || exit 1; done

# In these nothing runs side by side, or programs, whole clusters, SQLite and large states do, which the race detector
# makes five times as slow: make test runs them without it, make test-long those of LARGE with it, and make test-drivers
# those of PROCESSES. What the programs of cmd/skerry are made of has tests of its own with it.
SEQUENTIAL := chaos/(check|history|mutations|report|schedule)|fleet(/cron|/jobspec|/template)?|hub/collector|reconcile
LARGE := chaos/fabric|chaos/virtual|edge/journal|hub/scheduler|hub/state
PROCESSES := drivers/rawexec|drivers/supervised|drivers/wasm|edge/network
UNRACED := ^skerry(/($(SEQUENTIAL)|$(LARGE)|$(PROCESSES)|chaos/intercept|cmd/skerry|cmd/skerry-chaos))?$$
packages = ./$(subst |, ./,$(1))
# The longest tests of whole clusters, which make test-long plays with the race detector alone.
LONGEST := ARotationWaitsForItsHubs|PeriodicSurvivesTheLeader|RestoreWhileTheFleetRuns
# Scripts of cmd/skerry that run whole fleets of real processes, and full disks: make test-real plays them.
REAL_SCRIPTS := audit-onsite|badstart|context|dev|dev-temporary|disk|earlier-release|habits|login|makeroom|migrate|namespace|neighbours|sealedkey|secrets|sitecode|tokens
REAL_PROGRAMS := ForReal$$|^TestScripts$$/^($(REAL_SCRIPTS))$$
# Most tests wait, so two packages more than cores. make test begins the long packages first, so that no core waits for
# one at the end. Tests of cmd/skerry wait for programs, so twice as many at once as cores. make lint vets.
GOTEST := go test -vet=off -p $$(expr $$(getconf _NPROCESSORS_ONLN) + 2) -shuffle=on -timeout 30m
TWICE := -parallel $$(expr 2 \* $$(getconf _NPROCESSORS_ONLN))

test: ## every package, in random order, with the race detector where something runs side by side: 8 minutes on 2 cores
	$(GOTEST) -short $(RACE) ./edge $$(go list ./... | grep -vE '$(UNRACED)' | sort -r)
	$(GOTEST) -short -skip '^Test($(LONGEST))$$|$(REAL_PROGRAMS)' $(TWICE) ./cmd/skerry $(call packages,$(LARGE)) $$(go list ./... | grep -E '$(UNRACED)')
	go test -run 'TestAHubMovesToAnotherAddress' ./hub/consensus # raft has a race of its own there
	@$(MAKE) --no-print-directory missing

# Packages whose tests run real daemons, machines and networks. With -short they leave those out.
DRIVERS := ./drivers/docker ./drivers/exec ./drivers/java ./drivers/qemu ./edge/machinekey/tpm
TEST_PROCESSES := $(GOTEST) -count=1 $(RACE) $(call packages,$(PROCESSES))
# Job files that nobody here wrote, on real daemons.
PUBLIC_JOBS := go test -vet=off -timeout 15m -count=1 -run TestPublicJobFilesRun ./cmd/skerry

test-drivers: ## task drivers and networks on the real thing: needs root and the programs that make missing lists
	go test -vet=off -p 2 -shuffle=on -timeout 30m -count=1 $(DRIVERS)
	$(TEST_PROCESSES)
	$(PUBLIC_JOBS)

test-real: ## all that runs real processes: whole clusters whose links are cut, scripts, and the drivers of test-drivers
	go test -vet=off -p 2 -shuffle=on -timeout 30m -count=1 ./chaos/real $(DRIVERS)
	$(TEST_PROCESSES)
	$(GOTEST) -count=1 -run '$(REAL_PROGRAMS)' $(TWICE) ./cmd/skerry
	CGO_ENABLED=0 $(GOTEST) -count=1 -run '^TestScripts$$/^repeat$$' ./cmd/skerry-chaos
	$(PUBLIC_JOBS)

test-writes: ## a full disk, a power cut and half a write at every kind of write of a whole edge, as root with runc; a drawn part: WRITES_FOR=4m SEED=7
	go test -vet=off -timeout 60m -count=1 -v -run '^TestEveryWrite$$' ./chaos/intercept $(if $(WRITES_FOR),-args -for $(WRITES_FOR) -seed $(SEED))

# What runs tasks or seals keys, and the Debian package that has it.
PROGRAMS_OF_DRIVERS := dockerd:docker.io podman:podman crun:crun runc:runc java:openjdk-17-jre-headless qemu-system-x86_64:qemu-system-x86 \
  /usr/lib/cni/bridge:containernetworking-plugins iptables:iptables busybox:busybox-static git:git swtpm:swtpm

missing: ## which drivers' tests are left out, because a program is not on this machine
	@for p in $(PROGRAMS_OF_DRIVERS); do command -v $${p%%:*} >/dev/null || echo "  $${p%%:*}  is missing: its tests are left out; Debian's package $${p##*:} has it"; done

# What -short shortens in packages whose other tests it leaves as they are.
SHORTENED := AWeekWithoutHubsAndSources|CallOfEverySize|DesiredFramesOfALargeNode|FourHundredDays|LargeFleetThroughTheAPI|LargePlansTravel|LossDuplicateReorder|ProfilesOfScenarios|RolloutOverAnAbsentFleet|TheCAIsReplacedUnderAFleet|TheWindowMovesOn|UnknownKeysAreBounded

test-long: test-shortened test-raced test-whole ## the tests that make test shortens, at their whole length, and the large ones with the race detector: make -j 2

test-raced:
	$(GOTEST) -short $(RACE) -skip '^Test($(SHORTENED))$$' $(call packages,$(LARGE))

test-shortened:
	$(GOTEST) -run '^Test($(SHORTENED))$$' ./chaos/fabric ./chaos/virtual ./hub/api ./hub/events ./hub/gateway ./hub/rpc

test-whole:
	$(GOTEST) ./chaos/schedule ./edge/link ./fleet/... ./hub/planner ./hub/scheduler ./hub/state ./reconcile ./syncproto

prometheus: build ## Prometheus finds and scrapes what runs on a fleet; a module of its own
	cd chaos/prometheus && go test -count=1 ./...

properties: ## random clusters, jobs and events, each judged: make properties CASES=1000000 SEED=7
	GOGC=400 go test -count=1 -v -timeout 24h -run '^TestLives$$' ./hub/scheduler -args -cases $(or $(CASES),1000000) -seed $(SEED)

demo: build ## three hubs, three edges, a cut link, a reboot, a killed leader: under 60 s
	bin/skerry-chaos demo --bin bin

operations: build ## every command of docs/operations.md, on machines in network namespaces; needs root
	go test -count=1 -tags operations ./docs

bench: build ## benchmarks, then memory and size of the real programs
	go test -run '^$$' -bench . -benchmem ./...
	bin/skerry-chaos footprint --bin bin --idle 1m

EVERY_DRIVER := raw_exec,exec,wasm,docker,podman,java,qemu

benchmarks: build ## the tables of docs/benchmarks.md: two hours, as root, on a machine that does nothing else
	bin/skerry-chaos footprint --bin bin --driver $(EVERY_DRIVER) --table docs/benchmarks.md
	bin/skerry-chaos run reboot --bin bin --driver $(EVERY_DRIVER) --boots 20 --table docs/benchmarks.md
	bin/skerry-chaos run reboot --bin bin --driver $(EVERY_DRIVER) --boots 20 --secrets --table docs/benchmarks.md
	bin/skerry-chaos run registrations --bin bin --table docs/benchmarks.md
	bin/skerry-chaos run registrations --bin bin --hubs 1 --table docs/benchmarks.md
	bin/skerry-chaos run placement --bin bin --edges 1000 --table docs/benchmarks.md
	bin/skerry-chaos run placement --bin bin --table docs/benchmarks.md
	bin/skerry-chaos run placement --bin bin --cpu 40000 --table docs/benchmarks.md

measure: ## how the source reads: names, documentation, imports, size
	@go run ./internal/measure

measure-record: ## lower the ceilings of make lint to what has become better
	go run ./internal/measure -record

lint: ## static checks, and the types of the edge for every system that is supported
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo "run gofmt -w on these files"; exit 1; }
	go vet ./...
	go vet -tags operations ./docs
	cd chaos/prometheus && go vet ./...
	go tool staticcheck ./...
	go run ./internal/measure -check
	go run ./internal/crosscheck $(SYSTEMS) ./cmd/skerry-edge

SYSTEMS := linux/arm64 linux/arm darwin/arm64 windows/amd64

cross: ## compiles for every system that is supported: before a release, as it takes ten minutes without a build cache
	GOOS=linux GOARCH=arm64 CGO_ENABLED=0 go build -o /dev/null ./cmd/skerry
	@for t in $(SYSTEMS); do \
	  echo "build skerry-edge for $$t"; \
	  GOOS=$${t%/*} GOARCH=$${t#*/} CGO_ENABLED=0 go build -o /dev/null ./cmd/skerry-edge || exit 1; done

chaos: build ## whole fleets in virtual time, an hour of faults in seconds: make chaos BUDGET=10m SEED=7
	bin/skerry-chaos sim $(addprefix --scenario=chaos/scenarios/,full-journal.yaml late-rows.yaml local-stop.yaml restored-and-compacted.yaml) --seeds 1000000 --budget $(BUDGET) --seed $(SEED) --report dist/chaos $(CHAOS)

scenarios: build ## the scenarios of chaos/scenarios, in virtual time
	bin/skerry-chaos sim $(addprefix --scenario=,$(wildcard chaos/scenarios/*.yaml)) --report dist/scenarios

chaos-real: build ## real processes, disks, clocks and networks: make chaos-real FOR=30m SEED=7
	bin/skerry-chaos run faults --bin bin --for $(FOR) --seed $(SEED) --report dist/chaos-real

mutations: ## mistakes put in by intent: each is found by its tests, and by the invariant that it breaks. REPLAYS=10 ONLY=sed
	go test -count=1 -timeout 3h -v -run '^TestMutations$$/($(ONLY))' ./chaos/mutations -args -play -replays $(or $(REPLAYS),0)

mutants: build ## small mistakes in the source: does a test, or a campaign, notice them? make mutants COUNT=40 CAMPAIGN=3m
	bin/skerry-chaos mutate --count $(or $(COUNT),200) --seed $(or $(MUTANTS_SEED),1) --campaign $(or $(CAMPAIGN),3m) --table dist/mutants.md

conformance: ## every row of ../shared/conformance that a test names, and how many those are
	go test -count=1 ./fleet/... ./reconcile/... ./hub/... ./edge/allocs ./edge/runner
	go test -count=1 -run '^TestRows$$' -v .

# Go minimizes each input that reaches new code, for a minute unless told otherwise, and counts
# nothing meanwhile: where the order of a map decides what is reached, that is all it ever does.
fuzz: ## every fuzz target for a while: make fuzz FUZZTIME=1m
	@for f in $$(grep -rl '^func Fuzz' --include=*_test.go .); do \
	  for t in $$(grep -o '^func Fuzz[A-Za-z0-9_]*' $$f | cut -c6-); do \
	    go test -run '^$$' -fuzz "^$$t\$$" -fuzztime $(or $(FUZZTIME),10s) -fuzzminimizetime 100x ./$$(dirname $$f) || exit 1; done; done
