#!/bin/bash
#SBATCH --nodes=8 --ntasks-per-node=8
# Options in one variable, the command within quotes, one command or another.
BATCH=1
DEBUG=0
if [[ $DEBUG -eq 1 ]]; then
    MBZ=1
    BZ=8
else
    MBZ=1
    BZ=128
fi
OPTIONS=" \
    --num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672 \
    --num-attention-heads 64 --group-query-attention --num-query-groups 8 \
    --seq-length 8192 --max-position-embeddings 8192 --vocab-size 128256 \
    --position-embedding-type rope --swiglu --disable-bias-linear \
    --normalization RMSNorm --untie-embeddings-and-output-weights \
    --attention-dropout 0.0 --hidden-dropout 0.0 --bf16 \
    --tensor-model-parallel-size 8 --sequence-parallel --tp-comm-overlap \
    --pipeline-model-parallel-size 4 \
    --num-layers-per-virtual-pipeline-stage 5 \
    --micro-batch-size ${MBZ} --global-batch-size ${BZ} \
    --use-distributed-optimizer --overlap-grad-reduce \
    --overlap-param-gather --recompute-granularity full \
    --recompute-method block --recompute-num-layers 2"
if [[ $BATCH -eq 0 ]]; then
    torchrun --nproc_per_node 8 pretrain_gpt.py ${OPTIONS} --save interactive
else
    run_cmd="python -u ${PWD}/pretrain_gpt.py ${OPTIONS}"
    srun -l sh -c "${run_cmd}"
fi
