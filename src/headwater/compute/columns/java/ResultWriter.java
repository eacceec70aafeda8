package headwater;

import java.io.BufferedOutputStream;
import java.io.File;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.util.Collections;
import java.util.Iterator;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.function.Function2;

/** What a task does with its Arrow batches: one file of them, an Arrow stream; returns its number and the path. */
public final class ResultWriter implements Function2 {
    private final String directory;
    private final byte[] schema;
    private final long bytesMax;
    private final String tooLarge;

    public ResultWriter(String directory, byte[] schema, long bytesMax, String tooLarge) {
        this.directory = directory;
        this.schema = schema;
        this.bytesMax = bytesMax;
        this.tooLarge = tooLarge;
    }

    public Object call(Object partition, Object given) throws Exception {
        Iterator batches = (Iterator) given;
        if (!batches.hasNext()) {
            return Collections.emptyIterator();
        }
        File file = new File(directory, "" + TaskContext.get().taskAttemptId());
        OutputStream out = new BufferedOutputStream(new FileOutputStream(file), 1 << 16);
        try {
            out.write(schema);
            while (batches.hasNext()) {
                out.write((byte[]) batches.next());
                out.flush();
                if (written() > bytesMax) {
                    new File(directory, tooLarge).createNewFile();
                    throw new IOException("the result is too large");
                }
            }
        } finally {
            out.close();
        }
        return Collections.singleton(partition + " " + file.getPath()).iterator();
    }

    /** How much all tasks have written so far. */
    private long written() {
        File[] files = new File(directory).listFiles();
        long size = 0;
        for (int n = 0; files != null && n < files.length; n++) {
            size += files[n].length();
        }
        return size;
    }
}
