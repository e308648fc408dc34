"""The subcommands of ``confplane rollups`` and their help. Their imports are made when they run."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import typer

from confplane.cli.command_group import CommandGroup
from confplane.cli.options import AsJson, ClusterName, Local, SettingsFile, existing_file, is_local, load_settings
from confplane.cli.output import echo, is_json, print_error
from confplane.cli.remote import options as remote
from confplane.cli.remote import rollup_reads, session
from confplane.cli.remote.options import AsLines
from confplane.cli.rollup_options import (
    ClassArchive,
    Master,
    MaxConnections,
    ReadDsn,
    address_of,
    check_master,
    check_read,
    conditions_of,
    day_of,
    moment_of,
    read_yaml,
)
from confplane.domain.rollups import ROLLUPS
from confplane.domain.rollups import capacity as capacities
from confplane.domain.teams import teams as team_names

if TYPE_CHECKING:
    from confplane.client import AsyncConfplane

_FAILED = 1

commands = CommandGroup()
rollups = commands.subgroup("rollups")

_JOBS = "\n\n".join(f"- `{each.name}`: {each.question}" for each in ROLLUPS.values())


@rollups.command(
    help="Run one rollup, or all of them, and publish their results.\n\n"
    f"{_JOBS}\n\n"
    "Rows go to Postgres, from where `confplane rollups show` and the API's `/rollups` read them. All rows of a run"
    " appear at once, when the run is complete; until then the last complete run is shown. Of several complete runs the"
    " run with the latest moment is current.\n\n"
    "The command may be run at any time, also while the service runs, and twice at once. The next run cleans up after a"
    " killed one. It reads Postgres and ZooKeeper directly, with the service's settings. Needs a Java runtime, version"
    " 17 or later, and the extra `spark`.",
    epilog="Examples:\n\n"
    "    confplane rollups run all --cluster payments\n\n"
    "    confplane rollups run quotas --cluster payments --capacity broker.yaml\n\n"
    "    confplane rollups run usage --cluster payments --usage measured.csv --capacity broker.yaml\n\n"
    "    confplane rollups run activity --cluster payments --teams teams.yaml --since 2026-01-01\n\n"
    "    confplane rollups run compare --cluster payments --with payments-staging\n\n"
    "    confplane rollups run compare --cluster payments --with 2026-01-31T12:00:00Z\n\n"
    "    confplane rollups run all --cluster payments --master spark://spark:7077 --output s3a://lake/confplane\n\n"
    "    confplane rollups run integrity --cluster payments --fail-on-mismatch\n\n"
    "Exit codes: 0 all were published; 1 not all were; 2 the settings or the options are not valid; 4 all were"
    " published, and `--fail-on-mismatch` found some.",
)
def run(
    name: Annotated[str, typer.Argument(metavar="NAME|all", help="The rollup.")],
    cluster: ClusterName,
    *,
    master: Master = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="DATE",
            help="Count again from this day on (UTC), and keep the current run's counts of earlier days.",
            show_default="from where the current run ends",
        ),
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Count everything again, from the beginning.")] = False,
    as_of: Annotated[
        str | None,
        typer.Option(
            "--as-of",
            metavar="TIME",
            help="The moment of the result, such as 2026-01-31T12:00:00Z. Rollups that read ZooKeeper, which has no"
            " past, have no other moment than now.",
            show_default="now",
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="Write Parquet too, below this path on any file system that Hadoop knows:"
            " PATH/job=NAME/as_of_date=DATE/run_id=RUN. PATH/_current/NAME/CLUSTER.json names the current run.",
        ),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="Read the exports in this lake, of their own moment, in place of Postgres and ZooKeeper.",
        ),
    ] = None,
    read_dsn: ReadDsn = None,
    max_connections: MaxConnections = None,
    capacity: Annotated[
        Path | None,
        existing_file(
            "YAML: quota key to the capacity of one broker, as in `producer_byte_rate: 125000000`. For `quotas`"
            " and `usage`."
        ),
    ] = None,
    teams: Annotated[
        Path | None,
        existing_file("YAML: the teams of principals, by name or pattern (docs/rollups.md). For `activity`."),
    ] = None,
    other: Annotated[
        str | None,
        typer.Option(
            "--with",
            metavar="CLUSTER|TIME",
            help="The other side of `compare`: another cluster of the settings as it is, or the same cluster at a time,"
            " such as 2026-01-31T12:00:00Z, by its trail. `all` includes `compare` only if this option is given.",
        ),
    ] = None,
    usage: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="The measurements of `usage`: CSV or Parquet with the columns time, user, client-id, metric, value, or"
            " YAML with queries for Prometheus (docs/rollups.md). `all` includes `usage` only if this option is given.",
        ),
    ] = None,
    fail_on_mismatch: Annotated[
        bool,
        typer.Option(
            "--fail-on-mismatch",
            help="A gate for schedulers: the exit code is 4 where `integrity` found mismatches that are not pending.",
        ),
    ] = False,
    class_archive: ClassArchive = True,
    as_json: AsJson = False,
    settings_file: SettingsFile = None,
) -> None:
    """Run rollups; the help is above."""
    _known(name, *ROLLUPS, "all")
    given = {"compare": other, "usage": usage}
    names = [each for each in ROLLUPS if given.get(each, "") is not None] if name == "all" else [name]
    if given.get(name, "") is None:
        raise typer.BadParameter(f"{name} needs {ROLLUPS[name].needs}", param_hint="NAME")
    if fail_on_mismatch and "integrity" not in names:
        raise typer.BadParameter("It is only for the rollup integrity.", param_hint="--fail-on-mismatch")
    if since is not None and full:
        raise typer.BadParameter("Give either --since or --full", param_hint="--since")
    if source is not None and as_of is not None:
        raise typer.BadParameter(
            "Give either --source, whose exports have their own time, or --as-of", param_hint="--source"
        )
    if source is not None and (other, usage) != (None, None):
        raise typer.BadParameter("--with and --usage are not supported with --source.", param_hint="--source")
    if source is not None and read_dsn is not None:
        raise typer.BadParameter("Give either --source or --read-dsn", param_hint="--read-dsn")
    check_master(master)
    day, moment = day_of(since), moment_of(as_of)
    if name != "all":
        optional = {
            "--as-of": as_of, "--capacity": capacity, "--full": full or None, "--since": since, "--source": source,
            "--teams": teams, "--usage": usage, "--with": other,
        }  # fmt: skip
        check_read(name, [option for option, value in optional.items() if value is not None])
    limits, members = read_yaml(capacity, "--capacity", capacities), read_yaml(teams, "--teams", team_names)
    settings = load_settings(settings_file)
    try:
        from confplane.cli import rollups as command
    except ModuleNotFoundError as error:
        _missing("run", error)
    options = command.RollupRunOptions(
        names,
        master=master,
        since=day,
        full=full,
        as_of=moment,
        output=output,
        source=source,
        read_dsn=read_dsn,
        max_connections=max_connections,
        capacity=limits or {},
        teams=members,
        archives_classes=class_archive,
        other=other,
        usage=usage,
        fails_on_mismatch=fail_on_mismatch,
    )
    raise typer.Exit(command.run(settings, cluster, options))


@rollups.command(
    help="Export the history itself to a lake: Parquet files by day, each row once.\n\n"
    "- `trail`: the changes with their outcomes, and the recorder's states\n\n"
    "- `registrations`: the events of the registrations\n\n"
    "- `znodes`: the configs as they are, without secrets\n\n"
    "Only days with new rows or new outcomes are read and written again. The export becomes visible as a whole."
    " `confplane rollups run --source PATH` runs rollups on the exports. Grants do not apply to the lake:"
    " everybody who can read its files can read all entities.",
    epilog="Examples:\n\n"
    "    confplane rollups export all --cluster payments --output s3a://lake/confplane\n\n"
    "    confplane rollups export trail --cluster payments --output /lake --without reason,ticket --pseudonyms key\n\n"
    "Exit codes: 0 exported; 1 not exported, or a store is not available; 2 the settings or the options are not valid.",
)
def export(
    name: Annotated[str, typer.Argument(metavar="NAME|all", help="The part of the history.")],
    cluster: ClusterName,
    output: Annotated[str, typer.Option(metavar="PATH", help="The lake, on any file system that Hadoop knows.")],
    *,
    master: Master = None,
    full: Annotated[bool, typer.Option("--full", help="Export all days again.")] = False,
    without: Annotated[
        str,
        typer.Option(
            metavar="COLUMNS",
            help="Columns of the trail to leave out: reason, request_id, source, ticket; separated by commas.",
        ),
    ] = "",
    pseudonyms: Annotated[
        Path | None,
        existing_file("Replace the principals of the trail by an HMAC with the key in this file, of 16 bytes or more."),
    ] = None,
    read_dsn: ReadDsn = None,
    max_connections: MaxConnections = None,
    class_archive: ClassArchive = True,
    as_json: AsJson = False,
    settings_file: SettingsFile = None,
) -> None:
    """Export the history; the help is above."""
    check_master(master)
    settings = load_settings(settings_file)
    try:
        from confplane.cli import rollups as command
        from confplane.rollups.exports.exporter import NAMES
    except ModuleNotFoundError as error:
        _missing("export", error)
    _known(name, *NAMES, "all")
    names = list(NAMES) if name == "all" else [name]
    for option, value in (("--without", without), ("--pseudonyms", pseudonyms)):
        if value and "trail" not in names:
            raise typer.BadParameter(f"{name} has no column of the trail: {option} is for trail", param_hint=option)
    options = command.RollupExportOptions(
        names,
        output,
        command.read_alterations(without, pseudonyms),
        master=master,
        full=full,
        read_dsn=read_dsn,
        max_connections=max_connections,
        archives_classes=class_archive,
    )
    raise typer.Exit(command.export(settings, cluster, options))


@rollups.command("list", epilog=f"Example:\n\n    confplane rollups list --cluster payments\n\n{remote.READ_CODES}")
@remote.served(as_lines=True)
async def list_rollups(client: AsyncConfplane) -> None:
    """List the rollups, each with its current run and the state of its last run."""
    await rollup_reads.list_rollups(client)


@rollups.command(
    epilog="Examples:\n\n"
    "    confplane rollups show integrity --cluster payments\n\n"
    "    confplane rollups show activity --cluster payments --where principal=User:admin --where 'day>=2026-01-31'\n\n"
    "    confplane rollups show impact --cluster payments --where 'value is null' --order-by 'affected desc'\n\n"
    "    confplane rollups show quotas --cluster payments --limit 0 --csv > quotas.csv\n\n"
    "Exit codes: 0 shown; 1 it was never run, or the service or Postgres did not answer; 2 the arguments, the profile"
    " or the settings are not valid.",
)
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The rollup.")],
    *,
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CONDITION",
            help="Only rows that meet this; may be given several times. `COLUMN=VALUE`; for numbers, dates and times"
            " also `<`, `<=`, `>` and `>=`; `COLUMN is null`, `COLUMN is not null`. Columns have the names of the"
            " table, or those of JSON.",
        ),
    ] = None,
    order_by: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMNS",
            help="Sort by these columns, separated by commas, such as `affected desc, default_id`. Rows without a value"
            " are last.",
            show_default="the key of the rollup",
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=0, metavar="N", help="Maximum number of rows; 0 for all.")] = 50,
    as_json: AsLines = False,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="Print CSV, with the names of the columns in the first line.")
    ] = False,
    cluster: remote.ClusterName = None,
    profile: remote.ProfileName = None,
    local: Local = False,
    settings_file: SettingsFile = None,
) -> None:
    """Show the current result of a rollup, with its run. Needs no Spark."""
    _known(name, *ROLLUPS)
    if is_json() and as_csv:
        raise typer.BadParameter("Give either --json or --csv", param_hint="--csv")
    rollup = ROLLUPS[name]
    equal, conditions = conditions_of(where or [])
    if unknown := equal.keys() - {each for column in rollup.columns for each in column.names}:
        columns = ", ".join(column.name for column in rollup.columns)
        raise typer.BadParameter(
            f"The rollup {name} has no column {unknown.pop()!r}. Available: {columns}.", param_hint="--where"
        )
    query = rollup_reads.ResultQuery(equal, conditions, order_by, limit + 1 if limit else None)
    form: Literal["json", "csv", "table"] = "json" if is_json() else "csv" if as_csv else "table"
    shown = partial(rollup_reads.print_result, rollup, limit=limit or None, form=form)
    if not is_local(local, settings_file, profile):

        async def read(client: AsyncConfplane) -> int:
            return shown(*await rollup_reads.read_result(client, rollup, query))

        raise session.run(profile, cluster, read)
    if cluster is None:
        raise typer.BadParameter("Name a cluster of the settings.", param_hint="--cluster")
    from confplane.cli import callers
    from confplane.cli import rollup_results as command
    from confplane.services.reads.rollups import never_run

    settings = load_settings(settings_file)

    async def read_here() -> int:
        result = await command.read_result(settings, cluster, rollup, query)
        return print_error(never_run(cluster, name), _FAILED) if result is None else shown(*result)

    raise typer.Exit(callers.run(read_here(), "Not shown"))


@rollups.command(
    epilog="Examples:\n\n"
    "    confplane rollups report --cluster payments --output rollups.html\n\n"
    "    confplane rollups report --cluster payments --base-url https://confplane.example.com --png charts\n\n"
    "Exit codes: 0 written; 1 not written, or Postgres is not available; 2 the settings or the options are not valid.",
)
def report(
    cluster: ClusterName,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="FILE", dir_okay=False, help="The page; an existing file is overwritten."
        ),
    ] = Path("rollups.html"),
    pictures: Annotated[
        Path | None,
        typer.Option(
            "--png",
            metavar="DIRECTORY",
            file_okay=False,
            help="Write each chart as a PNG file too; existing files are overwritten.",
        ),
    ] = None,
    base_url: Annotated[
        str | None, typer.Option(metavar="URL", help="The address of the service, for links from the page to the API.")
    ] = None,
    *,
    as_json: AsJson = False,
    settings_file: SettingsFile = None,
) -> None:
    """Write one HTML page with charts of all current results.

    The page needs no network and has no scripts. It lists the most relevant rows: the largest and the most unusual. The
    charts need the extra `spark`, but no Java.
    """
    address = address_of(base_url)
    settings = load_settings(settings_file)
    try:
        from confplane.cli import rollup_results as command
    except ModuleNotFoundError as error:
        _missing("report", error)
    raise typer.Exit(command.report(settings, cluster, output, pictures, address))


def _known(name: str, *names: str) -> None:
    if name not in names:
        raise typer.BadParameter(f"Unknown name {name!r}. Available: {', '.join(names)}.", param_hint="NAME")


def _missing(command: str, error: ModuleNotFoundError) -> NoReturn:
    missing = (error.name or "").partition(".")[0]
    echo(f"`confplane rollups {command}` needs {missing}: pip install 'confplane[spark]'", err=True)
    raise typer.Exit(_FAILED)
