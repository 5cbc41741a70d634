"""Skips are printed with their reason; where every test must run (COFFERDAM_ALL_TESTS=1) most are failures."""
import os

# What a machine may lack without anybody being able to help it.
MAY_SKIP = (
    "no package registry is reachable",
    "a sanitizer build is not packaged",
    "quickstart builds the release preset",
    "runuser stands in the process group",
    "go is not installed",
    "cargo is not installed",
    "java is not installed",
    "passthrough needs Linux 6.9 or newer",
    "gdb is not installed",
)


def pytest_terminal_summary(terminalreporter, exitstatus, config):
    skipped = terminalreporter.stats.get("skipped", [])
    seen = set()
    for report in skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if reason not in seen:
            seen.add(reason)
            terminalreporter.write_line(f"skipped: {report.nodeid}: {reason}")


def pytest_sessionfinish(session, exitstatus):
    if os.environ.get("COFFERDAM_ALL_TESTS") != "1":
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    for report in reporter.stats.get("skipped", []) if reporter else []:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if not any(allowed in reason for allowed in MAY_SKIP):
            session.exitstatus = 1
            reporter.write_line(f"skipped where every test must run: {report.nodeid}: {reason}")
