import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.quota.ClientQuotaFilterComponent;

/**
 * A load generator of Kafka's AdminClient behind JSON lines: {"call", "arguments"} on standard input, {"result"} or
 * {"fault"} on standard output, one answer a line, in order. It ends with its input.
 *
 * A client has one request under way at a time, so each connection of a rate is a client of its own, on a thread of its
 * own. Clients are kept from call to call.
 */
public final class KafkaLoad {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final long LIMIT_S = 1800;

    private final String bootstrap;
    private final List<AdminClient> clients = new ArrayList<>();

    private KafkaLoad(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err); // nothing else may come between the answers
        KafkaLoad load = new KafkaLoad(arguments[0]);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                JsonNode request = JSON.readTree(line);
                answer.set("result", load.call(request.get("call").asText(), request.get("arguments")));
            } catch (Exception fault) {
                answer.put("fault", fault.toString());
            }
            out.println(JSON.writeValueAsString(answer));
        }
        System.exit(0); // the clients' threads are not worth waiting for
    }

    private JsonNode call(String call, JsonNode given) throws Exception {
        switch (call) {
            case "describe":
                return rate(given, (client, entity, value) -> describe(client, entity));
            case "alter":
                return rate(given, (client, entity, value) -> alter(client, List.of(alteration(entity, value))));
            case "describeAll":
                return describeAll();
            case "alterMany":
                return alterMany(given);
            default:
                throw new IllegalArgumentException("no such call: " + call);
        }
    }

    /** Send requests on so many connections for a while; what came back after the warm-up, latencies in ms. */
    private JsonNode rate(JsonNode given, Request request) throws Exception {
        int connections = given.get("connections").asInt();
        int entities = given.get("entities").asInt();
        long first = given.get("first_value").asLong();
        connect(connections);
        long begun = System.nanoTime() + (long) (given.get("warm_up_s").asDouble() * 1e9);
        long end = begun + (long) (given.get("seconds").asDouble() * 1e9);
        List<Callable<List<Long>>> senders = new ArrayList<>();
        int[] warming = new int[connections];
        for (int each = 0; each < connections; each++) {
            int number = each;
            senders.add(() -> {
                List<Long> latencies = new ArrayList<>();
                long sent = System.nanoTime();
                for (long round = 1; sent < end; round++) {
                    int entity = (int) ((number + round * connections) % entities);
                    request.send(clients.get(number), entity, first + number + round * connections);
                    long now = System.nanoTime();
                    if (now >= end) {
                        break;
                    } else if (now >= begun) {
                        latencies.add(now - sent);
                    } else {
                        warming[number]++;
                    }
                    sent = now;
                }
                return latencies;
            });
        }
        List<Long> all = new ArrayList<>();
        ExecutorService threads = Executors.newFixedThreadPool(connections);
        try {
            for (Future<List<Long>> latencies : threads.invokeAll(senders)) {
                all.addAll(latencies.get());
            }
        } finally {
            threads.shutdown();
        }
        long allReplies = all.size();
        for (int count : warming) {
            allReplies += count;
        }
        all.sort(null);
        ObjectNode result = JSON.createObjectNode();
        result.put("replies", all.size());
        result.put("all_replies", allReplies);
        result.put("rate", all.size() / ((end - begun) / 1e9));
        result.put("p50_ms", all.get(all.size() / 2) / 1e6);
        return result;
    }

    /** Describe all entities, as a client does that wants them all. */
    private JsonNode describeAll() throws Exception {
        connect(1);
        long begun = System.nanoTime();
        Collection<?> found = clients.get(0).describeClientQuotas(ClientQuotaFilter.all()).entities()
            .get(LIMIT_S, TimeUnit.SECONDS).entrySet();
        double seconds = (System.nanoTime() - begun) / 1e9;
        return JSON.createObjectNode().put("seconds", seconds).put("entities", found.size());
    }

    /** Alter so many entities in one request. */
    private JsonNode alterMany(JsonNode given) throws Exception {
        connect(1);
        List<ClientQuotaAlteration> alterations = new ArrayList<>();
        for (int entity = 0; entity < given.get("entities").asInt(); entity++) {
            alterations.add(alteration(entity, given.get("value").asLong()));
        }
        long begun = System.nanoTime();
        alter(clients.get(0), alterations);
        return JSON.createObjectNode().put("seconds", (System.nanoTime() - begun) / 1e9);
    }

    private void connect(int connections) {
        while (clients.size() < connections) {
            Properties properties = new Properties();
            properties.put("bootstrap.servers", bootstrap);
            properties.put("request.timeout.ms", Long.toString(LIMIT_S * 1000));
            properties.put("default.api.timeout.ms", Long.toString(LIMIT_S * 1000));
            clients.add(AdminClient.create(properties));
        }
    }

    /** One user and nothing else: then the broker reads one node, otherwise it would read all. */
    private static void describe(AdminClient client, int entity) throws Exception {
        ClientQuotaFilter filter = ClientQuotaFilter.containsOnly(
            List.of(ClientQuotaFilterComponent.ofEntity(ClientQuotaEntity.USER, name(entity))));
        if (client.describeClientQuotas(filter).entities().get(LIMIT_S, TimeUnit.SECONDS).size() != 1) {
            throw new IllegalStateException(name(entity) + " was not found");
        }
    }

    private static void alter(AdminClient client, List<ClientQuotaAlteration> alterations) throws Exception {
        client.alterClientQuotas(alterations).all().get(LIMIT_S, TimeUnit.SECONDS);
    }

    private static ClientQuotaAlteration alteration(int entity, long value) {
        return new ClientQuotaAlteration(
            new ClientQuotaEntity(Map.of(ClientQuotaEntity.USER, name(entity))),
            List.of(new ClientQuotaAlteration.Op("producer_byte_rate", (double) value)));
    }

    private static String name(int entity) {
        return String.format("bench-%06d", entity);
    }

    private interface Request {
        void send(AdminClient client, int entity, long value) throws Exception;
    }
}
