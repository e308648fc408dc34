import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import org.apache.kafka.common.metadata.AbortTransactionRecord;
import org.apache.kafka.common.metadata.ClientQuotaRecord;
import org.apache.kafka.common.metadata.ConfigRecord;
import org.apache.kafka.common.metadata.RemoveTopicRecord;
import org.apache.kafka.common.metadata.TopicRecord;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.metadata.MetadataRecordSerde;

/**
 * The records about configs and topics in files of a metadata log, as Kafka itself reads them: a line of JSON each, in
 * the order of the files; in front of those of each file a line with its name. An aborted transaction is beyond it, and ends it with an error.
 */
public final class Records {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] files) throws Exception {
        for (String file : files) {
            System.out.println(JSON.writeValueAsString(JSON.createObjectNode().put("file", file)));
            try (FileRecords records = FileRecords.open(new File(file), false)) {
                for (RecordBatch batch : records.batches()) {
                    if (batch.isControlBatch()) {
                        continue;
                    }
                    for (Record record : batch) {
                        show(record);
                    }
                }
            }
        }
        System.out.flush();
    }

    private static void show(Record record) throws Exception {
        ByteBufferAccessor value = new ByteBufferAccessor(record.value());
        ApiMessage message = MetadataRecordSerde.INSTANCE.read(value, record.valueSize()).message();
        ObjectNode out = JSON.createObjectNode();
        out.put("offset", record.offset()).put("at", record.timestamp()).put("kind", message.getClass().getSimpleName());
        if (message instanceof ConfigRecord config) {
            out.put("type", config.resourceType()).put("name", config.resourceName());
            out.put("key", config.name()).put("value", config.value());
        } else if (message instanceof ClientQuotaRecord quota) {
            ArrayNode entity = out.putArray("entity");
            quota.entity().forEach(each -> entity.addArray().add(each.entityType()).add(each.entityName()));
            out.put("key", quota.key()).put("value", quota.value()).put("removed", quota.remove());
        } else if (message instanceof TopicRecord topic) {
            out.put("name", topic.name()).put("id", topic.topicId().toString());
        } else if (message instanceof RemoveTopicRecord topic) {
            out.put("id", topic.topicId().toString());
        } else if (message instanceof AbortTransactionRecord) {
            throw new IllegalStateException("an aborted transaction at " + record.offset());
        } else {
            return;
        }
        System.out.println(JSON.writeValueAsString(out));
    }
}
