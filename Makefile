# The two commands are `make demo` and `make test`; each does all of its own set-up.
.DEFAULT_GOAL := help
.PHONY: help downloads demo test test-quick lint format bench mutations lock clean

PY := .venv/bin/python
PYTEST := $(PY) -m pytest
BOOTSTRAP := @command -v python3 >/dev/null || { echo "Python 3.11 or newer is needed: install it and put python3 on the PATH." >&2; exit 1; }; python3 tools/bootstrap.py

help: ## show this
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

demo: ## run the main job on this machine; PROFILE=services does it on S3, PostgreSQL, Nessie and rclone
ifeq ($(PROFILE),services)
	$(BOOTSTRAP) dev --need java,go
	@$(PY) tools/fetch_artifacts.py --s3-server
else
	$(BOOTSTRAP) run --need java
	@$(PY) tools/fetch_artifacts.py --only iceberg-spark-runtime-4.1_2.13
endif
	@.venv/bin/headwater demo $(if $(PROFILE),--profile $(PROFILE))

test: downloads ## run every test, with real services
	@$(PYTEST)

test-quick: ## run the tests that need no Java and no server
	$(BOOTSTRAP) dev
	@$(PYTEST) -m "not services and not java and not slow"

mutations: ## check that each safety rule, when broken, turns a test red
	$(BOOTSTRAP) dev
	@$(PYTEST) tests/mutations

lint: ## check format, style, types and the import order
	$(BOOTSTRAP) dev
	@.venv/bin/ruff format --check .
	@.venv/bin/ruff check .
	@.venv/bin/mypy
	@.venv/bin/lint-imports

format: ## format the code
	$(BOOTSTRAP) dev
	@.venv/bin/ruff format .
	@.venv/bin/ruff check --fix .

bench: downloads ## measure beside a peer; ONLY=name runs one
	@$(PY) -m bench $(if $(ONLY),--only $(ONLY))

# Everything that comes from outside: packages, jars, and the S3 server, which is built once for the machine.
downloads:
	$(BOOTSTRAP) dev --need java,go
	@$(PY) tools/fetch_artifacts.py --s3-server

lock: ## resolve the pinned requirements anew
	$(BOOTSTRAP) dev
	@$(PY) -m pip install --quiet uv
	@tools/lock

clean: ## remove what the commands above made here
	@rm -rf .venv .mypy_cache .ruff_cache .hypothesis .import_linter_cache bench/results.json
