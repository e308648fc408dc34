#!/bin/sh
# What Spark on Kubernetes starts in a pod: `driver ...` and `executor` as Spark's own image takes them. Anything else is
# a command of its own, for example `confplane rollups run all`.
set -eu

# Spark looks up the name of the user, and Kubernetes may choose one that has none.
if ! id -un >/dev/null 2>&1 && [ -w /etc/passwd ]; then
    echo "spark:x:$(id -u):$(id -g):Spark:/tmp:/bin/false" >>/etc/passwd
fi

[ "${1:-}" = driver ] || [ "${1:-}" = executor ] || exec tini -s -- "$@"
role=$1
shift

class_path="$SPARK_HOME/jars/*"
[ -z "${SPARK_EXTRA_CLASSPATH:-}" ] || class_path="$class_path:$SPARK_EXTRA_CLASSPATH"
[ -z "${SPARK_CONF_DIR:-}" ] || class_path="$SPARK_CONF_DIR:$class_path"

if [ "$role" = driver ]; then
    exec tini -s -- "$SPARK_HOME/bin/spark-submit" \
        --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" \
        --conf "spark.executorEnv.SPARK_DRIVER_POD_IP=$SPARK_DRIVER_BIND_ADDRESS" \
        --deploy-mode client "$@"
fi

# Spark passes the options of the JVM as SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1 and so on; each is one argument.
number=0
set --
while eval "[ -n \"\${SPARK_JAVA_OPT_$number:-}\" ]"; do
    eval "set -- \"\$@\" \"\$SPARK_JAVA_OPT_$number\""
    number=$((number + 1))
done
exec tini -s -- java "$@" \
    "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" -cp "$class_path" \
    org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
    --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
    --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
    --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
