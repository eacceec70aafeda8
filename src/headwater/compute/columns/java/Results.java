package headwater;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.channels.Channels;
import java.util.List;
import org.apache.arrow.vector.ipc.WriteChannel;
import org.apache.arrow.vector.ipc.message.MessageSerializer;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.util.ArrowUtils;
import scala.reflect.ClassTag;

/** What Python calls (answer.py). */
public final class Results {
    /** How many rows are together in a batch: so often a task looks how much there is. */
    private static final int ROWS = 10000;

    /** Run a frame; its tasks write what they have into files. Returns a line for each: partition and path. */
    public String write(Dataset frame, String directory, long bytesMax, String tooLarge) throws IOException {
        ByteArrayOutputStream schema = new ByteArrayOutputStream();
        MessageSerializer.serialize(
            new WriteChannel(Channels.newChannel(schema)),
            ArrowUtils.toArrowSchema(frame.schema(), "UTC", false, false, ArrowUtils.toArrowSchema$default$5()));
        ClassTag bytes = scala.reflect.ClassTag$.MODULE$.apply(byte[].class);
        JavaRDD batches = JavaRDD.fromRDD(frame.toArrowBatchRdd(ROWS, "UTC", false, false), bytes);
        ResultWriter writer = new ResultWriter(directory, schema.toByteArray(), bytesMax, tooLarge);
        List files = batches.mapPartitionsWithIndex(writer, false).collect();
        return String.join("\n", files);
    }
}
