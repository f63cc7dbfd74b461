"""Odd inputs, as data for odd_test.py: what is given → exit code, and what the one line on standard error says.

A case is a dictionary:
  run     arguments of the program; {P} is a platform file that works, tiny.toml a scenario that does
  code    exit code
  says    a text that the line has; None where nothing is wrong and nothing may be said
  files   name → bytes (or text) in the folder of tiny.toml and text.txt; None: a folder; ("link", target): a link
  env     variables set (None: unset); streams: of "in", "out", "err" those that are closed, "full" (/dev/full) or "pipe"
          (whose reader is gone)
  limit_KiB  of memory (ulimit -v)
  makes   names that may appear in the folder (outputs of a run that succeeds)
"""

MODEL = "[model]\nnum_layers = 2\nhidden_size = 12\nnum_attention_heads = 3\nseq_length = 7\nvocab_size = 256\n"
READERS = (["show", "s.toml"], ["simulate", "s.toml", "--platform", "{P}"], ["train", "s.toml"],
           ["compare", "s.toml", "--platform", "{P}"], ["profile", "s.toml"])
TINY = (["show", "tiny.toml"], ["simulate", "tiny.toml", "--platform", "{P}"], ["train", "tiny.toml"],
        ["compare", "tiny.toml", "--platform", "{P}"], ["profile", "tiny.toml"])


def case(run, code, says, **rest):
    return dict(run=run, code=code, says=says, **rest)


def scenarios():
    """Cases with a file s.toml that is unreadable or has impossible values; the commands alternate."""
    whole = [
        (b"", "an empty file"),
        (b"\n\n# nothing\n", "an empty file"),
        (b"\0", "NUL"),
        (b"[model]\npreset = \"gpt2-124m\"\0\n", "s.toml:2: expected text, got a NUL byte"),
        (bytes(range(256)), "s.toml"),
        (b"\x7fELF\x02\x01\x01" + bytes(64), "s.toml"),
        (b"\xff\xfe" + MODEL.encode("utf-16-le"), "UTF-8"),
        (b"\xfe\xff" + MODEL.encode("utf-16-be"), "UTF-8"),
        (MODEL.encode("utf-32"), "UTF-8"),
        (b"\x1f\x8b\x08\x00" + bytes(20), "s.toml"),
        (b"name = \"\xc0\xaf\"\n" + MODEL.encode(), "UTF-8"),
        (b"name = \"\xed\xa0\x80\"\n" + MODEL.encode(), "UTF-8"),
        (b"# " + b"x" * 5000, "lines of at most 4096"),
        (b"# x\n" * 300_000, "at most 1048576 bytes"),
        (b"a = " + b"[" * 1000, "nested brackets"),
        (b"a = " + b"{a=" * 1000, "nested brackets"),
        (b"a" + b".a" * 1000 + b" = 1", "inside each other"),
        (b"{\"model\": {\"num_layers\": 2}}", "s.toml:1"),
        (b"<html></html>", "s.toml:1"),
        (b"model:\n  num_layers: 2\n", "s.toml:1"),
        (b"[model", "s.toml:1"),
        (b"[]\n", "s.toml:1"),
        (b"[[model]]\nnum_layers = 2\n", "expected a table"),
        (b"model = 3\n", "expected a table"),
        (b"model = \"gpt2\"\n", "expected a table"),
        (MODEL.encode() + b"num_layers = 3\n", "s.toml:7"),
        (MODEL.encode() + b"[model]\nnum_layers = 3\n", "s.toml"),
        (MODEL.encode() + b"[training]\nlr = 1\n[training]\nseed = 1\n", "s.toml"),
        (MODEL.encode().replace(b"\n", b"\r") + b"x", "s.toml"),
        (b"[training]\nlr = 1\n", "no [model] section"),
        (b"[model]\npreset = \"gpt5\"\n", "expected one of gpt2-124m"),
        (b"[model]\npreset = 5\n", "expected a string"),
        (b"[model]\nnum_layers = 2\n", "expected"),
        (b"[modle]\npreset = \"gpt2-124m\"\n", 'did you mean "model"?'),
    ]
    lines = [  # lines after MODEL
        ("hidden_size_ = 1", 'did you mean "hidden_size"?'),
        ("Hidden_Size = 1", "[model]"),
        ("[Training]\nlr = 1", "training"),
        ("[training]\nlearning_rate = 1", "expected"),
        ("[training]\nlr = nan", "nan"),
        ("[training]\nlr = inf", "inf"),
        ("[training]\nlr = -inf", "inf"),
        ("[training]\nlr = 1e309", "1e309"),
        ("[training]\nlr = -1", "-1"),
        ("[training]\nlr = true", "expected a number"),
        ("[training]\nlr = [1]", "expected a number"),
        ("[training]\nlr = {a=1}", "expected a number"),
        ("[training]\nlr = 1979-05-27", "date"),
        ("[training]\nlr = 0x", "s.toml:8"),
        ("[training]\nlr = 1_", "s.toml:8"),
        ("[training]\nlr = ١", "s.toml:8"),
        ("[training]\nseed = -1", "-1"),
        ("[training]\nseed = 9223372036854775808", "64 bits"),
        ("[training]\nseed = 0b" + "1" * 65, "64 bits"),
        ("[training]\nseed = 1.0", "expected an integer"),
        ("[training]\nseed = \"1\"", "expected an integer"),
        ("[training]\ntrain_iters = 0", "0"),
        ("[training]\ntrain_iters = 1_000_000_000_000_000", "train_iters"),
        ("[training]\nmicro_batch_size = 65537", "micro_batch_size"),
        ("[training]\nglobal_batch_size = 7\nmicro_batch_size = 2", "multiple of"),
        ("[training]\nglobal_batch_size = 99999999999", "global_batch_size"),
        ("[training]\nglobal_batch_size = 4194304", "layers x micro-batches"),
        ("[training]\nprecision = \"fp8\"", "expected \"bf16\" with fp8_format"),
        ("[training]\nprecision = \"FP32\"", "fp32"),
        ("[training]\nprecision = \"\"", "fp32"),
        ("[training]\nclip_grad = 1e10", "clip_grad"),
        ("[training]\nadam_beta1 = 1", "adam_beta1"),
        ("[training]\nadam_eps = 0", "adam_eps"),
        ("[training]\nlr = 1e-3\nmin_lr = 1", "min_lr"),
        ("[training]\nlr_warmup_iters = 1000", "lr_warmup_iters"),
        ("[training]\ntimeout_s = 0", "timeout_s"),
        ("[training]\ncheckpoint_interval = 5", "checkpoint_dir"),
        ("[training]\nrecompute_num_layers = 2", "recompute"),
        ("[training]\nrecompute_granularity = \"some\"", "selective"),
        ("[training]\nclip_grad = 1\ngradient_clip_val = 1", "gradient_clip_val"),
        ("[parallel]\ndata_parallel_size = 0", "data_parallel_size"),
        ("[parallel]\ndata_parallel_size = -4", "-4"),
        ("[parallel]\ndata_parallel_size = 16777217", "data_parallel_size"),
        ("[parallel]\ndata_parallel_size = 65537", "expected at most 1024 ranks on one device"),
        ("[parallel]\ntensor_model_parallel_size = 2", "divisor of num_attention_heads 3"),
        ("[parallel]\ntensor_model_parallel_size = 7", "divisor"),
        ("[parallel]\ntensor_model_parallel_size = 3\nsequence_parallel = true", "seq_length"),
        ("[parallel]\npipeline_model_parallel_size = 3", "pipeline_model_parallel_size"),
        ("[parallel]\npipeline_model_parallel_size = 1025", "1024"),
        ("[parallel]\nvirtual_pipeline_model_parallel_size = 2", "at least 2"),
        ("[parallel]\npipeline_model_parallel_size = 2\nvirtual_pipeline_model_parallel_size = 2", "to divide by 2"),
        ("[parallel]\npipeline_model_parallel_size = 2\nnum_layers_in_first_pipeline_stage = 3", "num_layers"),
        ("[parallel]\npipeline_model_parallel_size = 2\npipeline_model_parallel_layout = \"Ett|\"", "layout"),
        ("[parallel]\npipeline_model_parallel_size = 2\npipeline_model_parallel_layout = \"E(t|tL\"", "layout"),
        ("[parallel]\npipeline_model_parallel_size = 2\npipeline_model_parallel_layout = \"Et*999999999999|tL\"", "layout"),
        ("[parallel]\npipeline_model_parallel_size = 2\npipeline_model_parallel_layout = \"\\u001b[2J\"", "\\x1b"),
        ("[parallel]\npipeline_model_parallel_size = 2\npipeline_model_parallel_layout = \"Et|tL\"\n"
         "account_for_loss_in_pipeline_split = true", "only one of it"),
        ("[overlap]\noverlap_param_gather = true", "overlap_grad_reduce"),
        ("[overlap]\nbucket_size = 0", "bucket_size"),
        ("[overlap]\nbucket_size = -1", "bucket_size"),
        ("[overlap]\nbucket_size = 1e6", "expected an integer"),
        ("[overlap]\noverlap_grad_reduce = \"true\"", "true"),
        ("[overlap]\noverlap_grad_reduce = 1", "true or false"),
        ("[overlap]\noverlap_grad_reduce = true\noverlap_grad_sync = true", "overlap_grad_sync"),
        ("[overlap]\noverlap_p2p_comm = true\nbatch_p2p_comm = true", "batch_p2p_comm"),
        ("[overlap]\noverlap_p2p_comm_warmup_flush = true", "overlap_p2p_comm"),
        ("[overlap]\ndefer_embedding_wgrad_compute = true", "pipeline_model_parallel_size"),
        ("[overlap]\ntp_comm_overlap = true", "[overlap] tp_comm_overlap: expected "),
        ("[overlap]\ntp_comm_overlap = true\n[parallel]\ntensor_model_parallel_size = 3", "sequence_parallel = true as well"),
        ("[overlap]\nfp8_param_gather = true", "fp8"),
        ("[overlap.tp_comm_overlap_cfg]\nqkv_fprop = \"bulk\"", "qkv_fprop"),
        ("[overlap.tp_comm_overlap_cfg]\nqkv_fprop = {method = \"pipeline\"}", "ring_exchange"),
        ("[overlap.tp_comm_overlap_cfg]\nfc2_fprop = {method = \"ring_exchange\", num_slices = 2}", "flash"),
        ("[overlap.tp_comm_overlap_cfg]\nfc2_fprop = {method = \"flash\", num_slices = 0}", "num_slices"),
        ("[overlap.tp_comm_overlap_cfg]\nfc2_dgrad = {method = \"flash\", accumulate = \"owner\"}", "of fc2_dgrad"),
        ("[overlap.tp_comm_overlap_cfg]\nqkv_dgrad = {method = \"flash\"}\nqkv_wgrad = {method = \"bulk\"}", "expected none"),
        ("[overlap.tp_comm_overlap_cfg]\nqkv_drop = {method = \"bulk\"}", "qkv_"),
        ("[cluster]\nlink_GBps = 0", "link_GBps"),
        ("[cluster]\nlink_GBps = \"1 GB/s\"", "expected a number"),
        ("[cluster]\nlink_Gbps = 1", 'did you mean "link_GBps"?'),
        ("[cluster]\nlink_latency_us = -1", "link_latency_us"),
        ("[cluster]\nlink_latency_ms = 1", "link_latency"),
        ("[cluster]\ncores_per_device = 1.5", "expected an integer"),
        ("[cluster]\ncuda_device_max_connections = 33", "32"),
        ("[cluster]\nnetwork = \"ib\"", "links"),
        ("[cluster]\nnccl_communicator_config = {dp = {max_ctas = 65}}", "64"),
        ("[cluster]\nnccl_communicator_config = {dq = {max_ctas = 1}}", 'did you mean "dp"?'),
        ("[cluster]\nhigh_priority_stream_groups = [\"embd\"]", "dp, tp, cp and pp"),
        ("[cluster]\nhigh_priority_stream_groups = \"dp\"", "array"),
        ("[compare]\nranks = [1, 1]", "twice"),
        ("[compare]\nranks = [0]", "ranks"),
        ("[compare]\nranks = [1, \"2\"]", "ranks"),
        ("[compare]\nranks = 2", "array"),
        ("[compare]\nranks = [2000]", "1024 ranks on one device"),
        ("[compare]\nrepeats = 0", "repeats"),
        ("[comparee]\nrepeats = 1", 'did you mean "compare"?'),
        ("num_attention_heads = 5\n", "s.toml:7"),
        ("ffn_hidden_size = 4194305", "ffn_hidden_size"),
        ("normalization = \"BatchNorm\"", "LayerNorm"),
        ("hidden_dropout = 1", "hidden_dropout"),
        ("rotary_base = 1e4", "rope"),
        ("use_rope_scaling = true", "rope"),
        ("rope_scaling_factor = 8", "use_rope_scaling = true"),
        ("position_embedding_type = \"rope\"\nuse_rope_scaling = true\nrope_scaling_high_freq_factor = 1", "above the low_freq_factor"),
        ("position_embedding_type = \"rope\"\nrotary_seq_len_interpolation_factor = 0", "rotary_seq_len_interpolation_factor"),
        ("position_embedding_type = \"rope\"\nrotary_seq_len_interpolation_factor = 2\nuse_rope_scaling = true", "got both"),
        ("num_query_groups = 2", "num_query_groups"),
        ("make_vocab_size_divisible_by = 0", "make_vocab_size_divisible_by"),
        ("\"\\u001b]0;owned\\u0007\" = 1", "\\x1b]0;owned\\x07"),
        ("\"a\\nb\" = 1", "a\\x0ab"),
        ("\"" + "k" * 3000 + "\" = 1", "got an unknown key"),
        ("[training]\ndata = \"a\\u0000b\"", "NUL"),
    ]
    texts = whole + [((MODEL + line + "\n").encode(), says) for line, says in lines]
    for i, (text, says) in enumerate(texts):
        yield case(READERS[i % len(READERS)], 2, says, files={"s.toml": text})
    for sizes, says in [("num_layers = 0", "num_layers"), ("num_layers = 16385", "num_layers"), ("num_layers = 1e3", "integer"),
                        ("hidden_size = 13", "num_attention_heads"), ("hidden_size = 1048577", "hidden_size"),
                        ("seq_length = 16777217", "seq_length"), ("vocab_size = 0", "vocab_size"), ("seq_length = 0", "seq_length"),
                        ("num_layers = 99999999999999999999", "64 bits")]:
        key = sizes.split()[0]
        text = "".join(line + "\n" for line in MODEL.splitlines() if not line.startswith(key)) + sizes + "\n"
        yield case(["show", "s.toml"], 2, says, files={"s.toml": text})
    # Valid files that look odd.
    text = MODEL.encode()
    for odd in (text.replace(b"\n", b"\r\n"), b"\xef\xbb\xbf" + text, text.rstrip(b"\n"), b"\n" * 500 + text, text.replace(b" = ", b"\t=\t"),
                "name = \"Größe 大 🎼\"\n".encode() + text):
        yield case(["show", "s.toml", "--gates"], 0, None, files={"s.toml": odd})
    yield case(["simulate", "s.toml", "--platform", "{P}"], 0, None, files={"s.toml": "name = \"\\u001b[31mred\\u0007\"\n" + MODEL})
    yield case(["simulate", "s.toml", "--platform", "{P}"], 0, None, files={"s.toml": "name = \"a\\u202eb\\u2066c\\u2028\"\n" + MODEL})
    yield case(["simulate", "s.toml", "--platform", "{P}"], 0, None, files={"s.toml": "name = \"" + "n" * 4000 + "\"\n" + MODEL})


def paths():
    """Cases with paths of no regular file, for every argument that names a file."""
    for command in ("show", "simulate", "train", "compare", "profile"):
        yield case([command, "absent.toml"], 2, "absent.toml: expected a readable TOML file, got: No such file")
        yield case([command, "."], 2, "directory")
        yield case([command, "loop"], 2, "loop", files={"loop": ("link", "loop")})
        yield case([command, "x" * 300], 2, "File name too long")
    yield case(["show", "x/" * 3000], 2, "at most 4096 bytes")
    yield case(["show", ""], 2, "SCENARIO: expected a file, got an empty name")
    yield case(["show", "text.txt/x.toml"], 2, "Not a directory")
    yield case(["show", "/dev/null"], 2, "an empty file")
    yield case(["show", "/dev/zero"], 2, "/dev/zero")
    yield case(["show", "dangling"], 2, "No such file", files={"dangling": ("link", "nowhere")})
    yield case(["show", "a\x1b[2Jb.toml"], 2, "a\\x1b[2Jb.toml")
    yield case(["show", "a\nb.toml"], 2, "a\\nb.toml")
    yield case(["show", "a\u202eb.toml"], 2, "a\\u202eb.toml")
    yield case(["show", "\udcff.toml"], 2, "\\xff.toml")
    yield case(["show", "locked.toml"], 2, "Permission denied", files={"locked.toml": ("locked", MODEL)})
    for platform, says in [("absent.toml", "No such file"), (".", "directory"), ("tiny.toml", "expected"), ("text.txt", "text.txt:1"),
                           ("loop", "loop"), ("", "--platform: expected a file, got an empty name"), ("/dev/zero", "at most 1048576 bytes")]:
        for command in ("simulate", "compare"):
            yield case([command, "tiny.toml", "--platform", platform], 2, says, files={"loop": ("link", "loop")})
    for data, code, says in [("absent.txt", 2, "absent.txt"), (".", 2, "directory"), ("zero.bin", 2, "zero.bin"), ("odd.bin", 2, "odd.bin"),
                             ("loop", 2, "loop"), ("short.txt", 2, "short.txt"), ("/dev/null", 2, "/dev/null")]:
        yield case(["train", "tiny.toml", "--set", "training.data=" + data], code, says,
                   files={"zero.bin": b"", "odd.bin": b"abc", "short.txt": b"a", "loop": ("link", "loop")})
    for load, says in [("absent.safetensors", "absent.safetensors"), (".", ""), ("text.txt", "text.txt"), ("zero", "zero")]:
        yield case(["train", "tiny.toml", "--set", "training.load=" + load], 2, says, files={"zero": b""})
    yield case(["train", "tiny.toml", "--set", "training.checkpoint_dir=text.txt"], 2, "text.txt")
    yield case(["train", "tiny.toml", "--set", "training.checkpoint_dir=text.txt/x"], 2, "text.txt/x")
    yield case(["export", "absent"], 2, "")
    yield case(["export", "text.txt", "-o", "out.safetensors"], 2, "text.txt")
    yield case(["export", "."], 2, "")


def platforms():
    """Cases with platform files that have impossible values. PLATFORM stands for the text of a valid platform."""
    def changed(old, new, says):
        return case(["simulate", "tiny.toml", "--platform", "p.toml"], 2, says, files={"p.toml": ("platform", old, new)})
    yield changed("memory_bytes", "memory_GiB", "memory_bytes")
    yield changed("memory_bytes = ", "memory_bytes = -", "memory_bytes")
    yield changed("cores = ", "cores = 0 #", "cores")
    yield changed("cores = ", "cores = 1e9 #", "cores")
    yield changed("[host]", "[hosts]", "host")
    yield changed("[slowdown]", "version = 9\n[slowdown]", "version")
    yield changed("sgemm_GFLOPs", "sgemm_TFLOPs", "sgemm_GFLOPs")
    yield changed("value = ", "value = nan #", "p.toml:")
    yield changed("value = ", "value = -", "value")
    yield changed('kind = "', 'kind = "guessed', "measured")
    yield changed("coefficients_us = [", "coefficients_us = [\"a\", ", "coefficients_us")
    yield changed("coefficients_us = [", "coefficients_us = [inf, ", "p.toml:")
    yield changed("[cost.", "[cost.\"\\u001b[2J\".", "\\x1b[2J")
    yield changed("name = \"", "name = 3 # \"", "name")
    yield changed("name = \"", "nom = \"", "name")
    yield changed("\n", "\n\0", "NUL")


def usage():
    yield case(["simulat"], 2, 'did you mean "simulate"?')
    yield case(["SHOW", "tiny.toml"], 2, "SHOW")
    yield case([""], 2, "was not expected")
    yield case(["--hepl"], 2, "--hepl")
    yield case(["\x1b[2J"], 2, "\\x1b[2J")
    yield case(["x" * 100_000], 2, "was not expected")
    yield case(["export", "x"], 2, 'no model "x"')
    yield case(["export", "tiny.toml"], 2, "--output is required")
    for command in ("show", "simulate", "train", "compare", "profile"):
        yield case([command], 2, "required")
        yield case([command, "tiny.toml", "--unknown"], 2, "--unknown")
        yield case([command, "tiny.toml", "more"], 2, "more")
    for command in TINY:
        yield case([*command, "--json"], 2, "--json")
        yield case([*command, "--set"], 2, "--set")
        yield case([*command, "--set", "training"], 2, 'got no "="')
        yield case([*command, "--set", "training.lr=[1"], 2, "expected a TOML value")
    for text, says in [("=1", "expected section.key=value"), (".=1", "expected section.key=value"), ("a..b=1", "expected section.key=value"),
                       ("training.lr", 'got no "="'), ("training.lr=\"", "expected a TOML value"),
                       ("training.lr=1\n2", "several"), ("training.lr.x=1", "training.lr"), ("trainning.lr=1", 'did you mean "training"?'),
                       ("training=1", "expected a table"), ("model.num_layers=", "expected"), ("training.lr=\x1b[2J", "\\x1b[2J"),
                       ("training.\x1b[2J=1", "\\x1b[2J"), ("training.lr=\udcff", "UTF-8"), ("a" + ".a" * 50 + "=1", "expected section.key=value"),
                       ("training.lr=1e999", "1e999"), ("=", "expected section.key=value"), ("", "expected section.key=value")]:
        yield case(["show", "tiny.toml", "--set", text], 2, says)
    yield case(["simulate", "tiny.toml", "--platform", "{P}", "--engine", "magic"], 2, "fluid")
    yield case(["simulate", "tiny.toml", "--platform", "{P}", "--backbone-GBps", "nan"], 2, "--backbone-GBps")
    yield case(["simulate", "tiny.toml", "--platform", "{P}", "--backbone-GBps", "x"], 2, "--backbone-GBps")
    yield case(["simulate", "tiny.toml", "--platform", "{P}", "--backbone-GBps", "1"], 2, "--engine simgrid")
    yield case(["train", "tiny.toml", "--backend", "tpu"], 2, "--backend")
    yield case(["compare", "tiny.toml", "--platform", "{P}", "--ranks", "2"], 2, "--backend cuda")
    yield case(["train", "tiny.toml", "--ranks", "0"], 2, "--ranks")
    yield case(["train", "tiny.toml", "--ranks", "-1"], 2, "--ranks")
    yield case(["train", "tiny.toml", "--ranks", "two"], 2, "--ranks")
    yield case(["calibrate", "--cores", "0x"], 2, "--cores")
    yield case(["calibrate", "--backend", "cuda", "--cores", "2"], 2, "--cores")


def outputs():
    """Cases with unwritable outputs, which the program finds before it begins its work if possible."""
    for command in TINY[1:]:
        yield case([*command, "--json", "no/such/folder/x"], 2, "No such file")
        yield case([*command, "--json", "."], 2, "directory")
        yield case([*command, "--json", "text.txt/x"], 2, "Not a directory")
    for option in ("--json", "--trace", "--html"):
        yield case([*TINY[1], option, "x" * 300], 2, "File name too long")
        yield case([*TINY[1], option, "loop"], 2, "symbolic links", files={"loop": ("link", "loop")})
        yield case([*TINY[1], option, "/dev/full"], 1, "No space left")
    yield case(["show", "tiny.toml", "--json", "/dev/full"], 1, "No space left")
    yield case(["calibrate", "-o", "."], 2, "directory")
    yield case(["calibrate", "-o", "text.txt/x.toml"], 2, "text.txt/x.toml")
    for command in (["--version"], ["show", "tiny.toml"], ["show", "tiny.toml", "--json", "-"], TINY[1]):
        yield case(command, 1, "standard output: cannot be written", streams={"out": "full"})
        yield case(command, 1, "standard output: cannot be written", streams={"out": "closed"})
    yield case(["show", "tiny.toml"], -13, None, streams={"out": "pipe"})  # SIGPIPE, as with every tool in a pipe


def imports():
    """Cases of `calibrate --import` with implausible numbers, and with tables that are not text."""
    run = ["calibrate", "-o", "new.toml", "--base", "h100-sxm"]
    for option in ("--peak_TFLOPs", "--hbm_GBps", "--memory_GiB", "--nvlink_GBps", "--network_GBps"):
        for number in ("nan", "-nan", "inf", "-inf", "-1", "0", "1e309", "1e-300", "2e6"):
            yield case([*run, f"{option}={number}"], 2, option)
    for option in ("--domain", "--sms"):
        for number in ("nan", "0", "-8", "1e30"):
            yield case([*run, f"{option}={number}"], 2, option)
    yield case(["calibrate", "-o", "new.toml", "--base", "h100-sxm", "--minimal", "--seconds", "nan"], 2, "--seconds")
    gemm, collectives = "m,n,k,time_us\n1024,1024,1024,{}\n", "op,gpus,bytes,time_us\nall_gather,8,1048576,{}\n"
    for table in (gemm, collectives):
        for number in ("1e308", "nan", "inf", "-3", "0", "1e-320", "1e12", "", "fast"):
            yield case([*run, "--import", "t.csv"], 2, "t.csv:2: time_us: expected a number", files={"t.csv": table.format(number)})
    # The files claim 2 EFLOP/s, and 10 TB/s on a link of 450 GB/s.
    yield case([*run, "--import", "t.csv"], 2, "expected at most the peak", files={"t.csv": gemm.format(1).replace("1024", "10000")})
    yield case([*run, "--import", "t.csv"], 2, "expected at most 450 GB/s", files={"t.csv": collectives.format(0.1)})
    excel = gemm.encode().replace(b"{}", b"40") + b"# Gr\xf6\xdfe,,,\n"
    yield case([*run, "--import", "t.csv"], 2, "t.csv:3: expected UTF-8 text, got the byte 0xf6; save", files={"t.csv": excel})
    yield case([*run, "--import", "t.csv"], 2, "t.csv:1: expected UTF-8 text, got UTF-16; save", files={"t.csv": gemm.encode("utf-16")})
    yield case([*run, "--import", "t.csv"], 2, "t.csv:2: expected UTF-8 text, got a NUL byte", files={"t.csv": gemm.format("1\0").encode()})
    yield case([*run, "--import", "log.txt"], 2, "log.txt:2: expected UTF-8 text", files={"log.txt": b"# nccl-tests\n\xff\n"})
    yield case([*run, "--import", "t.csv"], 0, None, files={"t.csv": b"\xef\xbb\xbf" + gemm.format(40).replace("\n", "\r\n").encode()},
               makes=("new.toml", "new.gemm.csv", "new.collectives.csv"))
    yield case(["validate", "v.csv"], 2, "v.csv:2: expected UTF-8 text", files={"v.csv": b"id,source\n\xe9,x\n"})


def environments():
    show, simulate = ["show", "tiny.toml", "--gates"], TINY[1]
    for env in ({"LANG": "C", "LC_ALL": "C"}, {"LC_ALL": "tr_TR.UTF-8"}, {"LC_ALL": "xx_XX"}, {"TERM": None}, {"TERM": "\x1b[2J"}, {"PATH": None},
                {"COLUMNS": "-1"}, {"TZ": "Nowhere/Nowhere"}, {"MALLOC_ARENA_MAX": "-1"}, {"XDG_DATA_HOME": "x" * 5000},
                {"CUDA_DEVICE_MAX_CONNECTIONS": "many"}, {"OMP_NUM_THREADS": "-3"}, {"OPENBLAS_NUM_THREADS": "0"}, {"RANK": "x", "WORLD_SIZE": "y"},
                {"STRETTO_FOO": "1"}, {"TMPDIR": "/nowhere"}):
        yield case(simulate, 0, None, env=env)
    yield case(show, 0, None, env={"HOME": None, "XDG_DATA_HOME": None, "PATH": None, "TERM": None, "LANG": None})
    yield case(["simulate", "tiny.toml"], 2, "stretto calibrate", env={"HOME": None, "XDG_DATA_HOME": None})
    yield case(["simulate", "tiny.toml"], 2, "stretto calibrate", env={"HOME": "", "XDG_DATA_HOME": ""})
    yield case(["simulate", "tiny.toml"], 2, "stretto calibrate", env={"HOME": "/dev/null", "XDG_DATA_HOME": None})
    yield case(["simulate", "tiny.toml"], 2, "\\x1b[2J", env={"XDG_DATA_HOME": "/\x1b[2J"})
    yield case(["simulate", "tiny.toml"], 2, "stretto/host.toml", env={"XDG_DATA_HOME": "/" + "x" * 5000})
    train = ["train", "tiny.toml"]
    for env, says in [({"STRETTO_RANK": "x"}, "STRETTO_RANK"), ({"STRETTO_RANK": "0"}, "STRETTO_RANKS"), ({"STRETTO_RANK": "0", "STRETTO_RANKS": "0"}, "STRETTO_RANKS"),
                      ({"STRETTO_RANK": "2", "STRETTO_RANKS": "2"}, "STRETTO_RANK"), ({"STRETTO_RANK": "-1", "STRETTO_RANKS": "2"}, "STRETTO_RANK"),
                      ({"STRETTO_RANK": "0", "STRETTO_RANKS": "99999999999"}, "STRETTO_RANKS"),
                      ({"STRETTO_RANK": "0", "STRETTO_RANKS": "2", "STRETTO_PORT": "0"}, "STRETTO_PORT"),
                      ({"RANK": "0", "WORLD_SIZE": "2x"}, "WORLD_SIZE"), ({"RANK": "", "WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"}, "OMPI_COMM_WORLD_SIZE"),
                      ({"RANK": "0", "WORLD_SIZE": "2"}, "MASTER_ADDR"), ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "h", "MASTER_PORT": "65536"}, "MASTER_PORT"),
                      ({"RANK": "\x1b[2J", "WORLD_SIZE": "2"}, "\\x1b[2J"), ({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2"}, "SLURM_STEP_NODELIST"),
                      ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "h", "MASTER_PORT": "\u202ex"}, "\\u202ex"),
                      ({"PMI_RANK": "0", "PMI_SIZE": "two"}, "PMI_SIZE"), ({"PMI_RANK": "0", "PMI_SIZE": "2"}, "MASTER_ADDR")]:
        yield case(train, 2, says, env=env)
    yield case(show, 0, None, streams={"in": "closed"})
    yield case(["show", "absent.toml"], 2, None, streams={"err": "closed"})
    yield case(["show", "absent.toml"], 2, None, streams={"err": "full"})
    yield case(["show", "absent.toml"], 2, "absent.toml", streams={"in": "closed", "out": "closed"})


def sizes():
    """Cases with steps that are too large, and with too little memory."""
    def large(key, *settings, code=2, **rest):
        words = [word for setting in settings for word in ("--set", setting)]
        return case([*TINY[1], *words], code, key, **rest)
    yield large("[training] global_batch_size: expected at most ", "parallel.pipeline_model_parallel_size=512", "model.num_layers=512",
                "parallel.data_parallel_size=1", "training.global_batch_size=8192", "cluster.ranks_per_device=1")
    yield large("[cluster] ranks_per_device: expected 1", "parallel.data_parallel_size=16777216", "training.global_batch_size=16777216",
                "cluster.ranks_per_device=7")
    for command in TINY[:2]:
        yield case(command, 0, None, limit_KiB=300_000)
        yield case([*command, "--set", "training.global_batch_size=2000000"], 1, "out of memory: this process may have 292 MiB (ulimit -v)",
                   limit_KiB=300_000)


CASES = [one for group in (scenarios, paths, platforms, usage, outputs, imports, environments, sizes) for one in group()]
